package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;

/** The Stream API. */
final class Streams {
    static void checkAll() {
        check("stream-describe", Streams::describe);
        check("stream-records", Streams::records);
        check("stream-empty-read", Streams::emptyRead);
        check("stream-pages", Streams::pages);
        check("stream-from-time", Streams::fromTime);
        check("stream-original", Streams::original);
        check("stream-disable", Streams::disable);
    }

    /** Reads the one shard of a table's stream. */
    static final class Follower {
        final String streamId;
        final String shardId;
        String iterator;
        Boolean more;

        Follower(String table) {
            streamId = CLIENT.describeTable(new DescribeTableRequest(table))
                .getStreamDetails().getStreamId();
            List<StreamShard> shards =
                CLIENT.describeStream(new DescribeStreamRequest(streamId)).getShards();
            same(shards.size(), 1);
            shardId = shards.get(0).getShardId();
            iterator = CLIENT.getShardIterator(new GetShardIteratorRequest(streamId, shardId))
                .getShardIterator();
        }

        void seek(long timestamp) {
            GetShardIteratorRequest request = new GetShardIteratorRequest(streamId, shardId);
            request.setTimestamp(timestamp);
            iterator = CLIENT.getShardIterator(request).getShardIterator();
        }

        List<StreamRecord> read(int limit) {
            GetStreamRecordRequest request = new GetStreamRecordRequest(iterator);
            if (limit > 0) {
                request.setLimit(limit);
            }
            GetStreamRecordResponse told = CLIENT.getStreamRecord(request);
            that("open", told.getNextShardIterator() != null);
            iterator = told.getNextShardIterator();
            more = told.getMayMoreRecord();
            return told.getRecords();
        }
    }

    private static String streamed(String... columns) {
        StreamSpecification stream = new StreamSpecification(true, 24);
        if (columns.length > 0) {
            stream.addOriginColumnsToGet(columns);
        }
        return table(stream);
    }

    private static void describe() {
        String table = streamed("b", "a");
        ListStreamRequest request = new ListStreamRequest(table);
        List<Stream> listed = CLIENT.listStream(request).getStreams();
        same(listed.size(), 1);
        DescribeStreamResponse told =
            CLIENT.describeStream(new DescribeStreamRequest(listed.get(0).getStreamId()));
        same(told.getStreamId(), listed.get(0).getStreamId());
        same(told.getTableName(), table);
        same(told.getExpirationTime(), 24);
        same(told.getStatus(), StreamStatus.ACTIVE);
        same(told.getNextShardId(), null);
        same(told.getShards().size(), 1);
        that("microseconds", told.getCreationTime() / 1000 > System.currentTimeMillis() - 60_000);
        same(CLIENT.describeTable(new DescribeTableRequest(table)).getStreamDetails()
            .getOriginColumnsToGet(), new LinkedHashSet<>(Arrays.asList("b", "a")));
        drop(table);
    }

    private static void records() {
        String table = streamed();
        Follower follower = new Follower(table);
        PrimaryKey row = key("a", 1);
        put(table, row, column("c", "v", 5));
        send(new RowUpdateChange(table, row).put(column("colToUpdate", 1, 9))
            .deleteColumn("colToDel", 5).deleteColumns("colToDelAll"));
        send(new RowUpdateChange(table, row).increment(column("n", 42)));
        CLIENT.deleteRow(new DeleteRowRequest(new RowDeleteChange(table, row)));
        List<StreamRecord> records = follower.read(0);
        List<StreamRecord.RecordType> kinds = new ArrayList<>();
        long last = 0;
        for (StreamRecord record : records) {
            kinds.add(record.getRecordType());
            same(record.getPrimaryKey(), row);
            that("increases", record.getSequenceInfo().getTimestamp() > last);
            last = record.getSequenceInfo().getTimestamp();
        }
        same(kinds, Arrays.asList(StreamRecord.RecordType.PUT, StreamRecord.RecordType.UPDATE,
            StreamRecord.RecordType.UPDATE, StreamRecord.RecordType.DELETE));
        same(records.get(0).getColumns().get(0).getColumn(), column("c", "v", 5));
        List<RecordColumn.ColumnType> forms = new ArrayList<>();
        for (RecordColumn cell : records.get(1).getColumns()) {
            forms.add(cell.getColumnType());
        }
        same(forms, Arrays.asList(RecordColumn.ColumnType.DELETE_ONE_VERSION,
            RecordColumn.ColumnType.DELETE_ALL_VERSION, RecordColumn.ColumnType.PUT));
        same(records.get(2).getColumns().get(0).getColumn().getValue().asLong(), 42L);
        same(records.get(3).getColumns().size(), 0);
        drop(table);
    }

    private static void emptyRead() {
        String table = streamed();
        Follower follower = new Follower(table);
        for (int n = 0; n < 5; n++) {
            put(table, key("a", n), column("c", n));
            same(follower.read(1).size(), 1);
            same(follower.more, true);
            String before = follower.iterator;
            same(follower.read(0).size(), 0);
            same(follower.more, false);
            same(follower.iterator, before);
        }
        drop(table);
    }

    private static void pages() {
        String table = streamed();
        BatchWriteRowRequest request = new BatchWriteRowRequest();
        for (int n = 0; n < 100; n++) {
            RowPutChange change = new RowPutChange(table, key("a", n));
            request.addRowChange(change.addColumn(column("n", n)));
        }
        that("written", CLIENT.batchWriteRow(request).isAllSucceed());
        for (int limit : new int[] {1, 7, 100, 1000}) {
            Follower follower = new Follower(table);
            long next = 0;
            for (List<StreamRecord> page = follower.read(limit); !page.isEmpty();
                    page = follower.read(limit)) {
                that("limit", page.size() <= limit);
                for (StreamRecord record : page) {
                    same(record.getPrimaryKey(), key("a", next++));
                }
            }
            same(next, 100L);
        }
        drop(table);
    }

    private static void fromTime() {
        String table = streamed();
        Follower follower = new Follower(table);
        for (int n = 0; n < 10; n++) {
            put(table, key("a", n));
        }
        long at = follower.read(0).get(4).getSequenceInfo().getTimestamp();
        follower.seek(at);
        same(follower.read(0).size(), 6);
        follower.seek(1);
        same(follower.read(0).size(), 10);
        drop(table);
    }

    private static void original() {
        String table = streamed("a");
        Follower follower = new Follower(table);
        put(table, key("a", 1), column("a", 1), column("b", 1));
        put(table, key("a", 1), column("a", 2));
        List<StreamRecord> records = follower.read(0);
        same(records.get(0).getOriginColumns().size(), 0);
        same(records.get(1).getOriginColumns().size(), 1);
        same(records.get(1).getOriginColumns().get(0).getColumn().getValue().asLong(), 1L);
        drop(table);
    }

    private static void disable() throws Exception {
        String table = streamed();
        Follower follower = new Follower(table);
        UpdateTableRequest request = new UpdateTableRequest(table);
        request.setStreamSpecification(new StreamSpecification(false));
        CLIENT.updateTable(request);
        refused(404, "OTSTrimmedDataAccess",
            "Requested stream data is already trimmed or does not exist.", () -> follower.read(0));
        request.setStreamSpecification(new StreamSpecification(true, 1));
        StreamDetails told = CLIENT.updateTable(request).getStreamDetails();
        that("another stream", !told.getStreamId().equals(follower.streamId));
        same(told.getExpirationTime(), 1);
        Follower again = new Follower(table);
        put(table, key("a", 1));
        same(again.read(0).size(), 1);
        drop(table);
    }
}
