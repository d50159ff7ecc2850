package rowtide;

import com.alicloud.openservices.tablestore.SyncClient;
import com.alicloud.openservices.tablestore.model.Column;
import com.alicloud.openservices.tablestore.model.ColumnValue;
import com.alicloud.openservices.tablestore.timeline.TimelineMetaStore;
import com.alicloud.openservices.tablestore.timeline.TimelineQueue;
import com.alicloud.openservices.tablestore.timeline.TimelineStore;
import com.alicloud.openservices.tablestore.timeline.core.TimelineStoreFactoryImpl;
import com.alicloud.openservices.tablestore.timeline.model.*;
import com.alicloud.openservices.tablestore.timeline.query.ScanParameter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * Writes messages with the official library's Timeline to the first table, then prints those of each
 * table: a line for each, with its fields in the order of their names, and a line "end".
 */
public final class TimelineProgram {
    private static final SyncClient CLIENT = new SyncClient(
            Conformance.ENDPOINT, Conformance.KEY_ID, Conformance.SECRET, Conformance.INSTANCE);
    private static final TimelineStoreFactoryImpl FACTORY = new TimelineStoreFactoryImpl(CLIENT);
    private static final TimelineIdentifierSchema KEY =
            new TimelineIdentifierSchema.Builder().addStringField("timeline_id").build();
    private static final TimelineIdentifier GROUP =
            new TimelineIdentifier.Builder().addField("timeline_id", "group:7").build();

    public static void main(String[] tables) throws Exception {
        for (String table : tables) {
            TimelineStore store = FACTORY.createTimelineStore(new TimelineSchema(table, KEY));
            TimelineMetaStore metas =
                    FACTORY.createMetaStore(new TimelineMetaSchema(table + "_meta", KEY));
            if (table.equals(tables[0])) {
                store.prepareTables();
                metas.prepareTables();
                write(store.createTimelineQueue(GROUP), metas);
            }
            read(store.createTimelineQueue(GROUP), metas);
            System.out.println("end");
        }
        // To close a store closes the client that all share.
        CLIENT.shutdown();
        System.exit(0);
    }

    private static void write(TimelineQueue queue, TimelineMetaStore metas) throws Exception {
        TimelineMessage message = new TimelineMessage()
                .setField("text", "你好 \uD83D\uDE00")
                .setField("n", Long.MIN_VALUE)
                .setField("x", 1.5)
                .setField("ok", true)
                .setField(new Column("raw", ColumnValue.fromBinary(new byte[] {0, 1, -1})))
                .setField("tags", Arrays.asList("a", "", "\"\\\t\n", "<b>&='", "\u2028", "你", "\u007f"));
        TimelineEntry stored = queue.store(message);
        queue.update(stored.getSequenceID(), new TimelineMessage().setField("edited", 1L));
        queue.batchStore(new TimelineMessage().setField("text", "")).get();
        queue.delete(queue.store(new TimelineMessage().setField("text", "gone")).getSequenceID());
        TimelineMessageForV1 first = new TimelineMessageForV1("é".repeat(600_000));
        first.setMessageId("m1");
        first.addAttribute("sender", "ada");
        queue.store(first.getTimelineMessage());
        TimelineMessageForV1 empty = new TimelineMessageForV1("");
        empty.setMessageId("m2");
        queue.store(empty.getTimelineMessage());
        metas.insert(new TimelineMeta(GROUP).setField("name", "seven").setField("size", 2L));
        metas.update(new TimelineMeta(GROUP).setField("members", Arrays.asList("ada", "bob")));
    }

    private static void read(TimelineQueue queue, TimelineMetaStore metas) {
        Iterator<TimelineEntry> entries = queue.scan(new ScanParameter().scanForward(0));
        while (entries.hasNext()) {
            TimelineEntry entry = entries.next();
            System.out.println(entry.getSequenceID() + line(entry.getMessage().getFields()));
            if (entry.getMessage().contains("tags")) {
                StringBuilder tags = new StringBuilder("tags");
                for (String tag : entry.getMessage().getStringList("tags")) {
                    tags.append(' ').append(base64(tag.getBytes(StandardCharsets.UTF_8)));
                }
                System.out.println(tags);
            }
            if (entry.getMessage().contains("__crc32")) {
                String content = new TimelineMessageForV1(entry.getMessage()).getContent();
                System.out.println("content " + content.length());
            }
        }
        System.out.println("latest " + queue.getLatestSequenceId());
        TimelineMeta meta = metas.read(GROUP);
        System.out.println("meta" + line(meta.getFields()) + " " + meta.getStringList("members"));
    }

    private static String line(Map<String, Column> fields) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Column> field : new TreeMap<>(fields).entrySet()) {
            text.append(' ').append(field.getKey()).append('=').append(shown(field.getValue().getValue()));
        }
        return text.toString();
    }

    private static String shown(ColumnValue value) {
        switch (value.getType()) {
            case STRING:
                return "s:" + base64(value.asString().getBytes(StandardCharsets.UTF_8));
            case BINARY:
                return "b:" + base64(value.asBinary());
            default:
                return value.getType().name().charAt(0) + ":" + value;
        }
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
