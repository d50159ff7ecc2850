package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.model.*;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What a stream's records hold: original columns, deletes, results of increments, every value. */
final class Records {
    static void checkAll() {
        check("stream-original-kinds", Records::originals);
        check("stream-deletes", Records::deletes);
        check("stream-increments", Records::increments);
        check("stream-values", Records::everyValue);
        check("stream-failed-writes", Records::failedWrites);
        check("stream-long-table-name", Records::longName);
        check("stream-errors", Records::errors);
    }

    private static String streamed(String... columns) {
        StreamSpecification stream = new StreamSpecification(true, 24);
        if (columns.length > 0) {
            stream.addOriginColumnsToGet(columns);
        }
        return table(stream);
    }

    /** Returns a record's cells as text: name, form, value and version. */
    private static List<String> shown(List<RecordColumn> cells) {
        List<String> found = new ArrayList<>();
        for (RecordColumn cell : cells) {
            Column column = cell.getColumn();
            switch (cell.getColumnType()) {
                case PUT:
                    found.add(column.getName() + "=" + column.getValue().getValue() + "@"
                        + column.getTimestamp());
                    break;
                case DELETE_ONE_VERSION:
                    found.add(column.getName() + "-@" + column.getTimestamp());
                    break;
                default:
                    found.add(column.getName() + "-");
            }
        }
        return found;
    }

    /** Each kind of change shows the named columns as they were before it. */
    private static void originals() {
        String table = streamed("a", "n");
        Streams.Follower follower = new Streams.Follower(table);
        PrimaryKey row = key("p", 1);
        put(table, row, column("a", "one", 1), column("b", "one", 1));
        send(new RowUpdateChange(table, row).put(column("a", "two", 2)));
        send(new RowUpdateChange(table, row).increment(column("n", 5)));
        send(new RowUpdateChange(table, row).deleteColumns("a").put(column("b", "two", 2)));
        delete(table, row);
        List<StreamRecord> records = follower.read(0);
        same(records.size(), 5);
        String counted = shown(records.get(2).getColumns()).get(0);
        that(counted, counted.startsWith("n=5@"));
        List<List<String>> before = Arrays.asList(Collections.emptyList(),
            Arrays.asList("a=one@1"), Arrays.asList("a=two@2"), Arrays.asList("a=two@2", counted),
            Arrays.asList(counted));
        for (int n = 0; n < 5; n++) {
            same(shown(records.get(n).getOriginColumns()), before.get(n));
        }
        same(shown(records.get(3).getColumns()), Arrays.asList("a-", "b=two@2"));
        same(records.get(4).getColumns().size(), 0);
        drop(table);
    }

    private static void deletes() {
        String table = streamed();
        Streams.Follower follower = new Streams.Follower(table);
        PrimaryKey row = key("p", 1);
        for (int at = 1; at < 4; at++) {
            send(new RowUpdateChange(table, row).put(column("c", at, at)));
        }
        send(new RowUpdateChange(table, row).deleteColumn("c", 2).deleteColumn("d", 0)
            .deleteColumns("e"));
        SingleRowQueryCriteria query = criteria(table, row);
        query.setMaxVersions(5);
        Column[] left = get(query).getRow().getColumns();
        same(left.length, 2);
        same(left[0].getTimestamp(), 3L);
        same(left[1].getTimestamp(), 1L);
        same(shown(follower.read(0).get(3).getColumns()), Arrays.asList("c-@2", "d-@0", "e-"));
        drop(table);
    }

    /** A record shows what a counter came to, at the version it was given. */
    private static void increments() {
        String table = streamed();
        Streams.Follower follower = new Streams.Follower(table);
        PrimaryKey row = key("p", 1);
        for (int step : new int[] {40, 2, -50}) {
            RowUpdateChange change = new RowUpdateChange(table, row).increment(column("n", step));
            change.setReturnType(ReturnType.RT_AFTER_MODIFY);
            change.addReturnColumn("n");
            Column told = send(change).getRow().getLatestColumn("n");
            StreamRecord record = follower.read(0).get(0);
            same(record.getRecordType(), StreamRecord.RecordType.UPDATE);
            same(shown(record.getColumns()),
                Arrays.asList("n=" + told.getValue().asLong() + "@" + told.getTimestamp()));
        }
        same(read(table, row), Map.of("n", -8L));
        drop(table);
    }

    /** Every value comes through the stream as through a read. */
    private static void everyValue() {
        String table = streamed();
        Streams.Follower follower = new Streams.Follower(table);
        PrimaryKey row = key("", 1);
        List<Column> cells = new ArrayList<>();
        Rows.everyValue().forEach((name, value) -> cells.add(column(name, value)));
        cells.add(column("bytes", new byte[] {0, 1, 127, -128, -1}));
        cells.add(column("bytes_empty", new byte[0]));
        put(table, row, cells.toArray(new Column[0]));
        StreamRecord record = follower.read(0).get(0);
        same(record.getPrimaryKey(), row);
        List<Column> found = new ArrayList<>();
        for (RecordColumn cell : record.getColumns()) {
            same(cell.getColumnType(), RecordColumn.ColumnType.PUT);
            found.add(cell.getColumn());
        }
        same(found, Arrays.asList(get(criteria(table, row)).getRow().getColumns()));
        same(found.size(), cells.size());
        drop(table);
    }

    /** What is refused leaves no record; a batch leaves one per row that was written. */
    private static void failedWrites() throws Exception {
        String table = streamed();
        Streams.Follower follower = new Streams.Follower(table);
        RowPutChange strict = putting(table, key("p", 1), column("c", 1));
        strict.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        failed(() -> CLIENT.putRow(new PutRowRequest(strict)));
        BatchWrites.send(true, putting(table, key("p", 2)), strict);
        same(follower.read(0).size(), 0);
        BatchWrites.send(false, putting(table, key("p", 2)), strict, putting(table, key("p", 3)));
        BatchWrites.send(true, putting(table, key("q", 4)), putting(table, key("q", 5)));
        List<Long> numbers = new ArrayList<>();
        for (StreamRecord record : follower.read(0)) {
            numbers.add(record.getPrimaryKey().getPrimaryKeyColumn("pk2").getValue().asLong());
        }
        same(numbers, Arrays.asList(2L, 3L, 4L, 5L));
        drop(table);
    }

    /** A table's name may have 255 bytes, one whose stream is read 238. */
    private static void longName() throws Exception {
        for (int size : new int[] {238, 239}) {
            TableMeta meta = new TableMeta("n".repeat(size));
            meta.addPrimaryKeyColumn("k", PrimaryKeyType.STRING);
            String table = table(meta, new StreamSpecification(true, 24));
            Streams.Follower follower = new Streams.Follower(table);
            try {
                same(follower.read(0).size(), 0);
                same(size, 238);
            } catch (TableStoreException told) {
                same(size, 239);
                same(told.getErrorCode(), "OTSParameterInvalid");
                same(told.getHttpStatus(), 400);
                that(told.getMessage(), told.getMessage().startsWith("Invalid stream id"));
            } finally {
                drop(table);
            }
        }
    }

    private static void errors() throws Exception {
        String table = streamed();
        Streams.Follower follower = new Streams.Follower(table);
        refused(404, "OTSObjectNotExist", null,
            () -> CLIENT.describeStream(new DescribeStreamRequest("absent_1")));
        refused(404, "OTSObjectNotExist", null, () -> CLIENT.getShardIterator(
            new GetShardIteratorRequest(follower.streamId, "absent")));
        invalid(null, () -> CLIENT.getStreamRecord(new GetStreamRecordRequest("no iterator")));
        same(CLIENT.listStream(new ListStreamRequest(table)).getStreams().size(), 1);
        drop(table);
        refused(404, "OTSTrimmedDataAccess",
            "Requested stream data is already trimmed or does not exist.",
            () -> follower.read(0));
        refused(404, "OTSObjectNotExist", null,
            () -> CLIENT.describeStream(new DescribeStreamRequest(follower.streamId)));
    }
}
