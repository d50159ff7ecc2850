package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Local transactions: what is written within one, who sees it, and what is refused. */
final class Transactions {
    private static final String CONFLICT = "Data is being modified by the other request.";
    private static final String MISSING = "Session not exist or may be timeout.";

    static void checkAll() {
        check("transaction-commit", Transactions::commits);
        check("transaction-abort", Transactions::aborts);
        check("transaction-isolation", Transactions::isolation);
        check("transaction-range", Transactions::ranges);
        check("transaction-batch", Transactions::batches);
        check("transaction-conditions", Transactions::conditions);
        check("transaction-scope", Transactions::scope);
        check("transaction-errors", Transactions::errors);
        check("transaction-disallowed", Transactions::disallowed);
        check("transaction-dropped-table", Transactions::droppedTable);
        check("transaction-stream", Transactions::stream);
    }

    static PrimaryKey partition(String pk1) {
        return PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("pk1", PrimaryKeyValue.fromString(pk1)).build();
    }

    static String start(String table, PrimaryKey key) {
        StartLocalTransactionRequest request = new StartLocalTransactionRequest(table, key);
        String id = HASTY.startLocalTransaction(request).getTransactionID();
        that("an id", id != null && !id.isEmpty());
        return id;
    }

    static void commit(String id) {
        CLIENT.commitTransaction(new CommitTransactionRequest(id));
    }

    static void abort(String id) {
        CLIENT.abortTransaction(new AbortTransactionRequest(id));
    }

    private static void putWithin(String id, String table, PrimaryKey key, Object value) {
        PutRowRequest request = new PutRowRequest(putting(table, key, column("c", value)));
        request.setTransactionId(id);
        CLIENT.putRow(request);
    }

    private static Row updateWithin(String id, RowUpdateChange change) {
        UpdateRowRequest request = new UpdateRowRequest(change);
        request.setTransactionId(id);
        return CLIENT.updateRow(request).getRow();
    }

    static void deleteWithin(String id, String table, PrimaryKey key) {
        DeleteRowRequest request = new DeleteRowRequest(new RowDeleteChange(table, key));
        request.setTransactionId(id);
        CLIENT.deleteRow(request);
    }

    static Map<String, Object> readWithin(String id, String table, PrimaryKey key) {
        GetRowRequest request = new GetRowRequest(criteria(table, key));
        request.setTransactionId(id);
        return values(CLIENT.getRow(request).getRow());
    }

    /** Writes in every way; the transaction's reader sees it, others after the commit. */
    private static void commits() {
        String table = table();
        for (int n = 0; n < 3; n++) {
            put(table, key("p", n), column("c", "before"), column("n", 1));
        }
        String id = start(table, partition("p"));
        putWithin(id, table, key("p", 0), "after");
        RowUpdateChange change = new RowUpdateChange(table, key("p", 1))
            .put(column("c", "after")).increment(column("n", 41));
        change.setReturnType(ReturnType.RT_AFTER_MODIFY);
        change.addReturnColumn("n");
        same(updateWithin(id, change).getLatestColumn("n").getValue().asLong(), 42L);
        deleteWithin(id, table, key("p", 2));
        List<Map<String, Object>> after =
            Arrays.asList(Map.of("c", "after"), Map.of("c", "after", "n", 42L), null);
        for (int n = 0; n < 3; n++) {
            same(readWithin(id, table, key("p", n)), after.get(n));
            same(read(table, key("p", n)), Map.of("c", "before", "n", 1L));
        }
        commit(id);
        for (int n = 0; n < 3; n++) {
            same(read(table, key("p", n)), after.get(n));
        }
        drop(table);
    }

    private static void aborts() throws Exception {
        String table = table();
        put(table, key("p", 1), column("c", "before"));
        String id = start(table, partition("p"));
        putWithin(id, table, key("p", 1), "after");
        putWithin(id, table, key("p", 2), "new");
        abort(id);
        same(read(table, key("p", 1)), Map.of("c", "before"));
        same(read(table, key("p", 2)), null);
        refused(404, "OTSSessionNotExist", MISSING, () -> abort(id));
        refused(404, "OTSSessionNotExist", MISSING, () -> commit(id));
        refused(404, "OTSSessionNotExist", MISSING,
            () -> putWithin(id, table, key("p", 1), "late"));
        refused(404, "OTSSessionNotExist", MISSING, () -> readWithin(id, table, key("p", 1)));
        commit(start(table, partition("p")));
        drop(table);
    }

    private static void conflict(Scenario call) throws Exception {
        refused(409, "OTSRowOperationConflict", CONFLICT, call);
    }

    /** Others' writes of a held partition key fail, of another key they do not. */
    private static void isolation() throws Exception {
        String table = table();
        PrimaryKey row = key("p", 1);
        put(table, row, column("c", "before"));
        String id = start(table, partition("p"));
        conflict(() -> start(table, partition("p")));
        RowPutChange change = putting(table, row, column("c", "other"));
        conflict(() -> HASTY.putRow(new PutRowRequest(change)));
        conflict(() -> HASTY.updateRow(new UpdateRowRequest(
            new RowUpdateChange(table, key("p", 9)).put(column("c", "other")))));
        conflict(() -> HASTY.deleteRow(new DeleteRowRequest(new RowDeleteChange(table, row))));
        BatchWriteRowRequest batch = new BatchWriteRowRequest();
        batch.addRowChange(change);
        batch.addRowChange(putting(table, key("q", 1), column("c", "free")));
        List<BatchWriteRowResponse.RowResult> told =
            HASTY.batchWriteRow(batch).getRowStatus(table);
        same(told.get(0).getError().getCode(), "OTSRowOperationConflict");
        same(told.get(0).getError().getMessage(), CONFLICT);
        that("another key", told.get(1).isSucceed());
        same(read(table, row), Map.of("c", "before"));
        String other = start(table, partition("q"));
        putWithin(other, table, key("q", 2), "beside");
        commit(other);
        abort(id);
        put(table, row, column("c", "later"));
        same(read(table, row), Map.of("c", "later"));
        drop(table);
    }

    private static List<Long> numbers(String id, RangeRowQueryCriteria query) {
        List<Long> found = new ArrayList<>();
        query.setLimit(2);
        PrimaryKey next = query.getInclusiveStartPrimaryKey();
        while (next != null) {
            query.setInclusiveStartPrimaryKey(next);
            GetRangeRequest request = new GetRangeRequest(query);
            if (id != null) {
                request.setTransactionId(id);
            }
            GetRangeResponse told = CLIENT.getRange(request);
            for (Row row : told.getRows()) {
                found.add(row.getPrimaryKey().getPrimaryKeyColumn("pk2").getValue().asLong());
            }
            next = told.getNextStartPrimaryKey();
        }
        return found;
    }

    private static void ranges() {
        String table = table();
        for (int n = 0; n < 6; n++) {
            put(table, key("p", n), column("c", n));
        }
        String id = start(table, partition("p"));
        putWithin(id, table, key("p", 1), "changed");
        putWithin(id, table, key("p", 7), "added");
        deleteWithin(id, table, key("p", 3));
        List<Long> after = Arrays.asList(0L, 1L, 2L, 4L, 5L, 7L);
        same(numbers(id, Conformance.partition(table, "p")), after);
        RangeRowQueryCriteria backward = Conformance.partition(table, "p");
        PrimaryKey low = backward.getInclusiveStartPrimaryKey();
        backward.setInclusiveStartPrimaryKey(backward.getExclusiveEndPrimaryKey());
        backward.setExclusiveEndPrimaryKey(low);
        backward.setDirection(Direction.BACKWARD);
        List<Long> reversed = new ArrayList<>(after);
        Collections.reverse(reversed);
        same(numbers(id, backward), reversed);
        same(numbers(null, Conformance.partition(table, "p")),
            Arrays.asList(0L, 1L, 2L, 3L, 4L, 5L));
        commit(id);
        same(numbers(null, Conformance.partition(table, "p")), after);
        drop(table);
    }

    /** A batch within a transaction: each row succeeds or fails alone. It can't be atomic. */
    private static void batches() {
        String table = table();
        String id = start(table, partition("p"));
        RowPutChange strict = putting(table, key("p", 2), column("c", 2));
        strict.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        for (boolean atomic : new boolean[] {true, false}) {
            BatchWriteRowRequest batch = new BatchWriteRowRequest();
            batch.setTransactionId(id);
            batch.setAtomic(atomic);
            batch.addRowChange(putting(table, key("p", 1), column("c", 1)));
            batch.addRowChange(strict);
            List<BatchWriteRowResponse.RowResult> told =
                CLIENT.batchWriteRow(batch).getRowStatus(table);
            same(told.get(0).isSucceed(), !atomic);
            same(told.get(1).getError().getCode(),
                atomic ? "OTSParameterInvalid" : "OTSConditionCheckFail");
            same(readWithin(id, table, key("p", 1)), atomic ? null : Map.of("c", 1L));
        }
        BatchWriteRowRequest beside = new BatchWriteRowRequest();
        beside.setTransactionId(id);
        beside.addRowChange(putting(table, key("q", 1), column("c", 1)));
        beside.addRowChange(putting(table, key("p", 3), column("c", 3)));
        List<BatchWriteRowResponse.RowResult> told =
            CLIENT.batchWriteRow(beside).getRowStatus(table);
        same(told.get(0).getError().getCode(), "OTSDataOutOfRange");
        that("of the key", told.get(1).isSucceed());
        same(read(table, key("p", 1)), null);
        commit(id);
        same(read(table, key("p", 1)), Map.of("c", 1L));
        same(read(table, key("p", 3)), Map.of("c", 3L));
        same(read(table, key("q", 1)), null);
        drop(table);
    }

    /** A condition looks at what the transaction wrote; its failure ends nothing. */
    private static void conditions() throws Exception {
        String table = table();
        String id = start(table, partition("p"));
        putWithin(id, table, key("p", 1), 5);
        failed(() -> attempt(id, table, RowExistenceExpectation.EXPECT_NOT_EXIST, 5));
        failed(() -> attempt(id, table, RowExistenceExpectation.EXPECT_EXIST, 6));
        attempt(id, table, RowExistenceExpectation.EXPECT_EXIST, 5);
        commit(id);
        same(read(table, key("p", 1)), Map.of("c", 5L, "done", true));
        drop(table);
    }

    private static void attempt(String id, String table, RowExistenceExpectation row, long value) {
        RowUpdateChange change =
            new RowUpdateChange(table, key("p", 1)).put(column("done", true));
        Condition condition = new Condition(row);
        condition.setColumnCondition(new SingleColumnValueCondition("c",
            SingleColumnValueCondition.CompareOperator.EQUAL, ColumnValue.fromLong(value)));
        change.setCondition(condition);
        updateWithin(id, change);
    }

    private static void scope() throws Exception {
        String table = table();
        String other = table();
        String id = start(table, partition("p"));
        String beside = "Data out of scope of transaction. Transaction PartKey:p. Data PartKey:q";
        refused(400, "OTSDataOutOfRange", beside,
            () -> putWithin(id, table, key("q", 1), "v"));
        refused(400, "OTSDataOutOfRange", beside, () -> readWithin(id, table, key("q", 1)));
        refused(400, "OTSDataOutOfRange", "Data out of scope of transaction. Transaction Table:"
            + table + ". Data Table:" + other, () -> putWithin(id, other, key("p", 1), "v"));
        abort(id);
        drop(table);
        drop(other);
    }

    private static void errors() throws Exception {
        String table = table();
        invalid("StartLocalTransaction support only one primary key.",
            () -> start(table, key("p", 1)));
        absent(() -> start("absent", partition("p")));
        PrimaryKey wrong = PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("pk1", PrimaryKeyValue.fromLong(1)).build();
        refused(400, "OTSInvalidPK", "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.",
            () -> start(table, wrong));
        String text = "TransactionID is invalid.";
        for (String id : new String[] {"", "not existed transaction id"}) {
            invalid(text, () -> commit(id));
            invalid(text, () -> abort(id));
        }
        invalid(text, () -> putWithin("unknown", table, key("p", 1), "v"));
        invalid(text, () -> readWithin("unknown", table, key("p", 1)));
        invalid(text, () -> deleteWithin("unknown", table, key("p", 1)));
        invalid(text, () -> numbers("unknown", Conformance.partition(table, "p")));
        BatchWriteRowRequest batch = new BatchWriteRowRequest();
        batch.setTransactionId("unknown");
        batch.addRowChange(putting(table, key("p", 1)));
        invalid(text, () -> CLIENT.batchWriteRow(batch));
        drop(table);
    }

    private static void disallowed() throws Exception {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        CreateTableRequest request = new CreateTableRequest(meta, new TableOptions(-1, 1));
        request.setLocalTxnEnabled(false);
        CLIENT.createTable(request);
        invalid("Try to call method using explicit transaction on "
            + "explicit-transaction-disabled table.",
            () -> start(meta.getTableName(), partition("p")));
        drop(meta.getTableName());
    }

    /** A table that goes ends its transactions; one of the same name has none of them. */
    private static void droppedTable() throws Exception {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        String table = table(meta, null);
        String id = start(table, partition("p"));
        putWithin(id, table, key("p", 1), "v");
        drop(table);
        table(meta, null);
        refused(404, "OTSSessionNotExist", MISSING, () -> commit(id));
        same(read(table, key("p", 1)), null);
        commit(start(table, partition("p")));
        drop(table);
    }

    /** Records appear with the commit, in the order of the writes; none of an abort. */
    private static void stream() {
        String table = table(new StreamSpecification(true, 24));
        Streams.Follower follower = new Streams.Follower(table);
        String aborted = start(table, partition("p"));
        putWithin(aborted, table, key("p", 9), "v");
        abort(aborted);
        String id = start(table, partition("p"));
        for (int n = 3; n > 0; n--) {
            putWithin(id, table, key("p", n), n);
        }
        same(follower.read(0).size(), 0);
        commit(id);
        List<StreamRecord> records = follower.read(0);
        same(records.size(), 3);
        for (int n = 0; n < 3; n++) {
            same(records.get(n).getPrimaryKey(), key("p", 3 - n));
        }
        drop(table);
    }
}
