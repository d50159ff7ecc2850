package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** BatchWriteRow: as one, in order, with what it returns, and up to its limits. */
final class BatchWrites {
    private static final int MIB2 = 2097152;

    static void checkAll() {
        check("batch-atomic", BatchWrites::atomic);
        check("batch-atomic-errors", BatchWrites::atomicErrors);
        check("batch-order", BatchWrites::order);
        check("batch-returns", BatchWrites::returns);
        check("batch-limits", BatchWrites::limits);
    }

    static BatchWriteRowResponse send(boolean atomic, RowChange... changes) {
        BatchWriteRowRequest request = new BatchWriteRowRequest();
        if (atomic) {
            request.setAtomic(true);
        }
        for (RowChange change : changes) {
            request.addRowChange(change);
        }
        return HASTY.batchWriteRow(request);
    }

    private static void failed(BatchWriteRowResponse.RowResult row, String code, String text) {
        same(row.getError().getCode(), code);
        same(row.getError().getMessage(), text);
    }

    /** Writes rows of two tables, each table's as one. */
    private static void atomic() {
        String table = table();
        String other = table();
        put(table, key("p", 3), column("c", "old"));
        BatchWriteRowResponse told = send(true, putting(table, key("p", 1), column("c", "put")),
            new RowUpdateChange(table, key("p", 2)).put(column("c", "updated")),
            new RowDeleteChange(table, key("p", 3)),
            putting(other, key("q", 1), column("c", "other")));
        that("written", told.isAllSucceed());
        same(told.getRowStatus(table).get(0).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(0, 1));
        same(read(table, key("p", 1)), Map.of("c", "put"));
        same(read(table, key("p", 2)), Map.of("c", "updated"));
        same(read(table, key("p", 3)), null);
        same(read(other, key("q", 1)), Map.of("c", "other"));
        drop(table);
        drop(other);
    }

    /** One row that is refused refuses all; rows of two partition keys are out of scope. */
    private static void atomicErrors() {
        String table = table();
        RowPutChange strict = putting(table, key("p", 2), column("c", 2));
        strict.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        List<BatchWriteRowResponse.RowResult> rows =
            send(true, putting(table, key("p", 1), column("c", 1)), strict).getRowStatus(table);
        same(rows.get(0).getError().getCode(), "OTSConditionCheckFail");
        failed(rows.get(1), "OTSConditionCheckFail", "Condition check failed.");
        same(read(table, key("p", 1)), null);
        rows = send(true, putting(table, key("0", 1)), putting(table, key("1", 1)))
            .getRowStatus(table);
        for (BatchWriteRowResponse.RowResult row : rows) {
            failed(row, "OTSDataOutOfRange",
                "Data out of scope of atomic. Atomic PartKey:0. Data PartKey:1");
        }
        same(read(table, key("0", 1)), null);
        rows = send(true, putting("absent", key("p", 1))).getRowStatus("absent");
        failed(rows.get(0), "OTSObjectNotExist", "Requested table does not exist.");
        drop(table);
    }

    private static void order() {
        String table = table();
        PrimaryKey row = key("a", 1);
        that("written", send(false, putting(table, row, column("c", 1)),
            new RowDeleteChange(table, row), putting(table, row, column("d", 2)),
            putting(table, key("a", 2))).isAllSucceed());
        same(read(table, row), Map.of("d", 2L));
        same(read(table, key("a", 2)), Map.of());
        drop(table);
    }

    private static void returns() {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addAutoIncrementPrimaryKeyColumn("pk2");
        String auto = table(meta, null);
        String table = table();
        List<RowChange> changes = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            RowPutChange change = putting(auto, key(PrimaryKeyValue.fromString("a"),
                PrimaryKeyValue.AUTO_INCREMENT), column("c", n));
            change.setReturnType(ReturnType.RT_PK);
            RowUpdateChange step =
                new RowUpdateChange(table, key("counter", 1)).increment(column("n", 5));
            step.setReturnType(ReturnType.RT_AFTER_MODIFY);
            step.addReturnColumn("n");
            changes.add(change);
            changes.add(step);
        }
        BatchWriteRowResponse told = send(false, changes.toArray(new RowChange[0]));
        long last = 0;
        for (int n = 0; n < 3; n++) {
            PrimaryKey assigned = told.getRowStatus(auto).get(n).getRow().getPrimaryKey();
            long number = assigned.getPrimaryKeyColumn("pk2").getValue().asLong();
            that("increases", number > last);
            last = number;
            same(read(auto, assigned), Map.of("c", (long) n));
            same(told.getRowStatus(table).get(n).getRow().getLatestColumn("n").getValue().asLong(),
                5L * (n + 1));
        }
        drop(auto);
        drop(table);
    }

    private static RowChange[] bare(String table, int count) {
        RowChange[] changes = new RowChange[count];
        for (int n = 0; n < count; n++) {
            changes[n] = putting(table, key("a", n));
        }
        return changes;
    }

    /** A row is 3 + 1 and 3 + 8 bytes of its key, 1 of its column's name, and its value. */
    private static RowChange[] sized(String table, int size) {
        return new RowChange[] {
            putting(table, key("a", 1), column("c", new byte[MIB2 - 16])),
            putting(table, key("a", 2), column("c", new byte[size - MIB2 - 16]))};
    }

    private static void limits() throws Exception {
        String table = table();
        that("200", send(false, bare(table, 200)).isAllSucceed());
        invalid("Rows count exceeds the upper limit: 200.", () -> send(false, bare(table, 201)));
        MultiRowQueryCriteria query = new MultiRowQueryCriteria(table);
        query.setMaxVersions(1);
        BatchGetRowRequest request = new BatchGetRowRequest();
        for (int n = 0; n < 100; n++) {
            query.addRow(key("a", n));
        }
        request.addMultiRowQueryCriteria(query);
        same(CLIENT.batchGetRow(request).getSucceedRows().size(), 100);
        query.addRow(key("a", 100));
        invalid("Rows count exceeds the upper limit: 100.", () -> CLIENT.batchGetRow(request));
        that("4 MiB", send(false, sized(table, 2 * MIB2)).isAllSucceed());
        invalid("The total data size of BatchWriteRow request exceeds the limit, limit size: "
            + "4194304, data size: 4194305.", () -> send(false, sized(table, 2 * MIB2 + 1)));
        RowChange[] versioned = sized(table, 2 * MIB2 - 1);
        versioned[1] = putting(table, key("a", 2), column("c", new byte[MIB2 - 24], 5));
        that("8 bytes of a version", send(false, versioned).isAllSucceed());
        versioned[1] = putting(table, key("a", 2), column("c", new byte[MIB2 - 23], 5));
        invalid("The total data size of BatchWriteRow request exceeds the limit, limit size: "
            + "4194304, data size: 4194305.", () -> send(false, versioned));
        invalid("No row is specified in BatchWriteRow.", () -> send(false));
        invalid("No row specified in the request of BatchGetRow.",
            () -> CLIENT.batchGetRow(new BatchGetRowRequest()));
        MultiRowQueryCriteria bare = new MultiRowQueryCriteria(table);
        bare.addRow(key("a", 1));
        BatchGetRowRequest unversioned = new BatchGetRowRequest();
        unversioned.addMultiRowQueryCriteria(bare);
        invalid("No version condition is specified while querying row.",
            () -> CLIENT.batchGetRow(unversioned));
        drop(table);
    }
}
