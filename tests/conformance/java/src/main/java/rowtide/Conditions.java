package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.condition.ColumnCondition;
import com.alicloud.openservices.tablestore.model.condition.CompositeColumnValueCondition;
import com.alicloud.openservices.tablestore.model.condition.CompositeColumnValueCondition.LogicOperator;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition.CompareOperator;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Column conditions of writes: each comparison, combined, and where the row is absent. */
final class Conditions {
    private static String table;

    static void checkAll() {
        table = table();
        check("condition-kinds", Conditions::kinds);
        check("condition-versions", Conditions::versions);
        check("conditions-combined", Conditions::combined);
        check("conditions-on-absent-rows", Conditions::absentRows);
        check("conditions-on-writes", Conditions::writes);
        drop(table);
    }

    static SingleColumnValueCondition single(String name, CompareOperator operator, Object value) {
        return new SingleColumnValueCondition(name, operator, value(value));
    }

    static CompositeColumnValueCondition all(LogicOperator operator, ColumnCondition... parts) {
        CompositeColumnValueCondition node = new CompositeColumnValueCondition(operator);
        for (ColumnCondition part : parts) {
            node.addCondition(part);
        }
        return node;
    }

    private static Condition when(RowExistenceExpectation row, ColumnCondition columns) {
        Condition condition = new Condition(row);
        condition.setColumnCondition(columns);
        return condition;
    }

    /** Updates a row under a condition and says whether it was written. */
    private static boolean meets(PrimaryKey row, ColumnCondition condition) throws Exception {
        RowUpdateChange change = new RowUpdateChange(table, row).put(column("done", true));
        change.setCondition(when(RowExistenceExpectation.IGNORE, condition));
        try {
            send(change);
            return true;
        } catch (TableStoreException told) {
            failed(() -> {
                throw told;
            });
            return false;
        }
    }

    /** Compares every type with less, equal and more; another type is never equal. */
    private static void kinds() throws Exception {
        PrimaryKey row = key("kinds", 1);
        List<Object[]> cases = Arrays.asList(new Object[] {4, 5, 6}, new Object[] {1.25, 1.5, 1.75},
            new Object[] {"a", "b", "ba"}, new Object[] {"", "你", "\ud83c\udf0a"},
            new Object[] {new byte[] {0}, new byte[] {0, 1}, new byte[] {0, -1}});
        Map<CompareOperator, List<Boolean>> wanted = Map.of(
            CompareOperator.EQUAL, Arrays.asList(false, true, false),
            CompareOperator.NOT_EQUAL, Arrays.asList(true, false, true),
            CompareOperator.GREATER_THAN, Arrays.asList(true, false, false),
            CompareOperator.GREATER_EQUAL, Arrays.asList(true, true, false),
            CompareOperator.LESS_THAN, Arrays.asList(false, false, true),
            CompareOperator.LESS_EQUAL, Arrays.asList(false, true, true));
        for (Object[] one : cases) {
            put(table, row, column("c", one[1]));
            for (CompareOperator operator : CompareOperator.values()) {
                for (int n = 0; n < 3; n++) {
                    that(one[1] + " " + operator + " " + one[n],
                        meets(row, single("c", operator, one[n])) == wanted.get(operator).get(n));
                }
            }
        }
        put(table, row, column("c", 5));
        for (Object other : new Object[] {"5", 5.0, true, new byte[] {5}}) {
            same(meets(row, single("c", CompareOperator.EQUAL, other)), false);
        }
    }

    /** The newest version decides, or any that the table keeps. */
    private static void versions() throws Exception {
        PrimaryKey row = key("versions", 1);
        for (int at = 1; at < 4; at++) {
            send(new RowUpdateChange(table, row).put(column("c", at, at)));
        }
        same(meets(row, single("c", CompareOperator.EQUAL, 3)), true);
        same(meets(row, single("c", CompareOperator.EQUAL, 1)), false);
        same(meets(row, single("c", CompareOperator.EQUAL, 1).setLatestVersionsOnly(false)), true);
    }

    private static void combined() throws Exception {
        PrimaryKey row = key("combined", 1);
        put(table, row, column("n", 5), column("s", "text"));
        ColumnCondition yes = single("n", CompareOperator.EQUAL, 5);
        ColumnCondition no = single("s", CompareOperator.EQUAL, "other");
        ColumnCondition missing = single("x", CompareOperator.EQUAL, 1).setPassIfMissing(false);
        Map<ColumnCondition, Boolean> cases = Map.of(
            all(LogicOperator.AND, yes, yes), true, all(LogicOperator.AND, yes, no), false,
            all(LogicOperator.OR, no, yes), true, all(LogicOperator.OR, no, missing), false,
            all(LogicOperator.NOT, no), true, all(LogicOperator.NOT, yes), false,
            all(LogicOperator.NOT, missing), true, missing, false,
            single("x", CompareOperator.EQUAL, 1), true,
            all(LogicOperator.AND, all(LogicOperator.OR, no, yes), all(LogicOperator.NOT, no)), true);
        for (Map.Entry<ColumnCondition, Boolean> one : cases.entrySet()) {
            same(meets(row, one.getKey()), one.getValue());
        }
    }

    /** Only what passes without its column holds for a row that is not there. */
    private static void absentRows() throws Exception {
        SingleColumnValueCondition lenient = single("c", CompareOperator.EQUAL, 1);
        SingleColumnValueCondition strict =
            single("c", CompareOperator.EQUAL, 1).setPassIfMissing(false);
        same(meets(key("absent", 1), strict), false);
        same(read(table, key("absent", 1)), null);
        same(meets(key("absent", 2), lenient), true);
        same(read(table, key("absent", 2)), Map.of("done", true));
        RowDeleteChange change = new RowDeleteChange(table, key("absent", 3));
        change.setCondition(when(RowExistenceExpectation.IGNORE, strict));
        failed(() -> CLIENT.deleteRow(new DeleteRowRequest(change)));
    }

    /** A put, a delete and a row of a batch obey conditions as an update does. */
    private static void writes() throws Exception {
        PrimaryKey row = key("writes", 1);
        PrimaryKey other = key("writes", 2);
        put(table, row, column("n", 5));
        put(table, other, column("n", 5));
        Condition wrong = when(RowExistenceExpectation.EXPECT_EXIST,
            single("n", CompareOperator.EQUAL, 6));
        Condition right = when(RowExistenceExpectation.EXPECT_EXIST,
            single("n", CompareOperator.EQUAL, 5));
        RowPutChange change = putting(table, row, column("n", 5), column("more", 1));
        RowDeleteChange gone = new RowDeleteChange(table, other);
        change.setCondition(wrong);
        gone.setCondition(wrong);
        failed(() -> CLIENT.putRow(new PutRowRequest(change)));
        failed(() -> CLIENT.deleteRow(new DeleteRowRequest(gone)));
        same(BatchWrites.send(false, change, gone).getFailedRows().size(), 2);
        same(read(table, row), Map.of("n", 5L));
        change.setCondition(right);
        gone.setCondition(right);
        same(CLIENT.putRow(new PutRowRequest(change)).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(1, 1));
        that("both", BatchWrites.send(false, change, gone).isAllSucceed());
        same(read(table, row), Map.of("n", 5L, "more", 1L));
        same(read(table, other), null);
        RowDeleteChange again = new RowDeleteChange(table, row);
        again.setCondition(right);
        for (BatchWriteRowResponse.RowResult told :
            BatchWrites.send(false, change, again).getFailedRows()) {
            same(told.getError().getMessage(),
                "Repeated rows do not support row exist expectation check in BatchModify.");
        }
        same(read(table, row), Map.of("n", 5L, "more", 1L));
    }
}
