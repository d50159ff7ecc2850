package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition.CompareOperator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What is written is there, and under its conditions alone. */
final class Rows {
    private static final int MIB2 = 2097152;
    private static final String FAILED = "Condition check failed.";
    private static String table;

    static void checkAll() {
        table = table((StreamSpecification) null);
        check("types-in-columns", Rows::types);
        check("types-in-keys", Rows::keys);
        check("value-edges", Rows::edges);
        check("column-count", Rows::count);
        check("put-update-delete", Rows::life);
        check("increment", Rows::increment);
        check("increment-returns", Rows::incrementReturns);
        check("auto-increment", Rows::autoIncrement);
        check("auto-increment-rules", Rows::autoRules);
        check("expectations", Rows::expectations);
        check("column-conditions", Rows::conditions);
        drop(table);
    }

    /** Returns a value of every type but binary, and those at the edges, by a column's name. */
    static Map<String, Object> everyValue() {
        Map<String, Object> every = new LinkedHashMap<>();
        every.put("zero", 0L);
        every.put("int64_min", Long.MIN_VALUE);
        every.put("int64_max", Long.MAX_VALUE);
        every.put("double", 3.14159);
        every.put("double_huge", Double.MAX_VALUE);
        every.put("double_tiny", Double.MIN_VALUE);
        every.put("double_minus_zero", -0.0);
        every.put("true", true);
        every.put("false", false);
        every.put("text", "plain");
        every.put("text_empty", "");
        every.put("text_unicode", "Grüße 你好 \ud83c\udf0a");
        every.put("text_zero", "a\0b");
        every.put("公司", "a name that is not ASCII");
        every.put("a.:'\"$&*()/\\\n b", "and one of signs");
        return every;
    }

    private static void types() throws Exception {
        Map<String, Object> every = everyValue();
        List<Column> columns = new ArrayList<>();
        every.forEach((name, value) -> columns.add(column(name, value)));
        byte[] bytes = {0, 1, 127, -128, -1};
        columns.add(column("bytes", bytes));
        columns.add(column("bytes_empty", new byte[0]));
        put(table, key("types", 1), columns.toArray(new Column[0]));
        Map<String, Object> found = read(table, key("types", 1));
        that("bytes", Arrays.equals((byte[]) found.remove("bytes"), bytes));
        that("no bytes", ((byte[]) found.remove("bytes_empty")).length == 0);
        same(found, every);
        for (double wrong : new double[] {Double.NaN, Double.POSITIVE_INFINITY,
            Double.NEGATIVE_INFINITY}) {
            String name = Double.isNaN(wrong) ? "NaN" : "Infinity";
            refused(400, "OTSParameterInvalid", name + " can't be set to double value.",
                () -> put(table, key("types", 2), column("c", wrong)));
        }
    }

    private static void keys() {
        byte[] long_ = new byte[1024];
        Arrays.fill(long_, (byte) 255);
        List<List<PrimaryKeyValue>> edges = Arrays.asList(
            Arrays.asList(PrimaryKeyValue.fromLong(Long.MIN_VALUE), PrimaryKeyValue.fromLong(-1),
                PrimaryKeyValue.fromLong(0), PrimaryKeyValue.fromLong(Long.MAX_VALUE)),
            Arrays.asList(PrimaryKeyValue.fromString(""), PrimaryKeyValue.fromString("\0"),
                PrimaryKeyValue.fromString("a"), PrimaryKeyValue.fromString("a".repeat(1024)),
                PrimaryKeyValue.fromString("你".repeat(341))),
            Arrays.asList(PrimaryKeyValue.fromBinary(new byte[0]),
                PrimaryKeyValue.fromBinary(new byte[] {0}), PrimaryKeyValue.fromBinary(long_)));
        for (List<PrimaryKeyValue> values : edges) {
            TableMeta meta = meta();
            meta.addPrimaryKeyColumn("k", values.get(0).getType());
            String name = table(meta, null);
            List<PrimaryKeyValue> backwards = new ArrayList<>(values);
            Collections.reverse(backwards);
            for (PrimaryKeyValue value : backwards) {
                put(name, one(value), column("c", 1));
            }
            RangeRowQueryCriteria query = new RangeRowQueryCriteria(name);
            query.setMaxVersions(1);
            query.setInclusiveStartPrimaryKey(one(PrimaryKeyValue.INF_MIN));
            query.setExclusiveEndPrimaryKey(one(PrimaryKeyValue.INF_MAX));
            List<PrimaryKeyValue> found = new ArrayList<>();
            for (Row row : CLIENT.getRange(new GetRangeRequest(query)).getRows()) {
                found.add(row.getPrimaryKey().getPrimaryKeyColumn("k").getValue());
            }
            same(found, values);
            drop(name);
        }
    }

    private static PrimaryKey one(PrimaryKeyValue value) {
        return PrimaryKeyBuilder.createPrimaryKeyBuilder().addPrimaryKeyColumn("k", value).build();
    }

    private static void edges() throws Exception {
        byte[] largest = new byte[MIB2];
        Arrays.fill(largest, (byte) 'x');
        put(table, key("edge", 1), column("c", largest), column("d", new String(largest)));
        Map<String, Object> found = read(table, key("edge", 1));
        that("bytes", Arrays.equals((byte[]) found.get("c"), largest));
        same(found.get("d"), new String(largest));
        refused(400, "OTSParameterInvalid", "The length of attribute column: 'c' exceeds the "
            + "MaxLength:2097152 with CurrentLength:2097153.",
            () -> put(table, key("edge", 1), column("c", new byte[MIB2 + 1])));
        refused(400, "OTSParameterInvalid", "The length of primary key column: 'pk1' exceeds the "
            + "MaxLength:1024 with CurrentLength:1025.",
            () -> put(table, key("k".repeat(1025), 1)));
    }

    private static void count() throws Exception {
        List<Column> columns = new ArrayList<>();
        for (int n = 0; n < 1024; n++) {
            columns.add(column("c" + n, n));
        }
        put(table, key("many", 1), columns.toArray(new Column[0]));
        same(read(table, key("many", 1)).size(), 1024);
        columns.add(column("more", 1));
        refused(400, "OTSParameterInvalid", "The number of attribute columns exceeds the limit, "
            + "limit count: 1024, column count: 1025.",
            () -> put(table, key("many", 1), columns.toArray(new Column[0])));
    }

    private static void life() {
        PrimaryKey row = key("life", 1);
        put(table, row, column("a", 1, 10), column("b", 1, 10), column("c", 1, 10));
        send(new RowUpdateChange(table, row).put(column("a", 2, 20)).deleteColumn("b", 10)
            .deleteColumns("c").put(column("d", "new")));
        SingleRowQueryCriteria query = criteria(table, row);
        query.setMaxVersions(5);
        Column[] found = get(query).getRow().getColumns();
        same(found.length, 3);
        same(found[0].getTimestamp(), 20L);
        same(found[1].getTimestamp(), 10L);
        same(found[2].getValue().asString(), "new");
        put(table, row);
        same(read(table, row).size(), 0);
        CLIENT.deleteRow(new DeleteRowRequest(new RowDeleteChange(table, row)));
        same(read(table, row), null);
    }

    private static void increment() throws Exception {
        PrimaryKey row = key("increment", 1);
        long[][] steps = {{5, 5}, {-7, -2}, {Long.MAX_VALUE, Long.MAX_VALUE - 2}};
        for (long[] step : steps) {
            RowUpdateChange change = new RowUpdateChange(table, row).increment(column("n", step[0]));
            change.setReturnType(ReturnType.RT_AFTER_MODIFY);
            change.addReturnColumn("n");
            same(send(change).getRow().getLatestColumn("n").getValue().asLong(), step[1]);
        }
        refused(400, "OTSParameterInvalid", null,
            () -> send(new RowUpdateChange(table, row).increment(column("n", 3))));
        same(read(table, row).get("n"), Long.MAX_VALUE - 2);
    }

    /** Several counters in one change, of which those named are told. */
    private static void incrementReturns() throws Exception {
        PrimaryKey row = key("counters", 1);
        put(table, row, column("n", 10), column("other", "kept"));
        RowUpdateChange change = new RowUpdateChange(table, row)
            .increment(column("n", Long.MIN_VALUE)).increment(column("m", -3))
            .increment(column("quiet", 1)).put(column("s", "beside"));
        change.setReturnType(ReturnType.RT_AFTER_MODIFY);
        change.addReturnColumn("n");
        change.addReturnColumn("m");
        Row told = send(change).getRow();
        same(values(told), Map.of("n", Long.MIN_VALUE + 10, "m", -3L));
        same(read(table, row), Map.of("n", Long.MIN_VALUE + 10, "m", -3L, "quiet", 1L,
            "s", "beside", "other", "kept"));
        refused(400, "OTSParameterInvalid", null,
            () -> send(new RowUpdateChange(table, row).increment(column("n", -11))));
    }

    private static String numbered() {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addAutoIncrementPrimaryKeyColumn("pk2");
        return table(meta, null);
    }

    /** A row's number is given by the server alone, in UpdateRow too. */
    private static void autoRules() throws Exception {
        String name = numbered();
        failed(() -> put(name, key("a", 7), column("c", 1)));
        failed(() -> send(new RowUpdateChange(name, key("a", 7)).put(column("c", 1))));
        PrimaryKey asked = key(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.AUTO_INCREMENT);
        RowUpdateChange change = new RowUpdateChange(name, asked).increment(column("n", 5));
        change.setReturnType(ReturnType.RT_PK);
        PrimaryKey assigned = send(change).getRow().getPrimaryKey();
        same(read(name, assigned), Map.of("n", 5L));
        put(name, assigned, column("c", "again"));
        same(read(name, assigned), Map.of("c", "again"));
        change.setCondition(new Condition(RowExistenceExpectation.EXPECT_NOT_EXIST));
        refused(400, "OTSParameterInvalid",
            "Invalid expect:EXPECT_NOT_EXIST when modify row with pk auto increment",
            () -> send(change));
        refused(400, "OTSParameterInvalid", "PKAutoIncr can't be used for read operations.",
            () -> read(name, asked));
        refused(400, "OTSParameterInvalid", "Invalid row to delete which with pk auto increment.",
            () -> delete(name, asked));
        drop(name);
    }

    private static void autoIncrement() {
        String name = numbered();
        long last = 0;
        for (int n = 0; n < 10; n++) {
            PrimaryKey asked = key(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.AUTO_INCREMENT);
            RowPutChange change = new RowPutChange(name, asked);
            change.addColumn(column("c", n));
            change.setReturnType(ReturnType.RT_PK);
            PrimaryKey told = CLIENT.putRow(new PutRowRequest(change)).getRow().getPrimaryKey();
            long value = told.getPrimaryKeyColumn("pk2").getValue().asLong();
            that("increases", value > last);
            last = value;
            same(read(name, told).get("c"), (long) n);
        }
        drop(name);
    }

    private static void expectations() throws Exception {
        PrimaryKey row = key("expect", 1);
        for (boolean there : new boolean[] {false, true}) {
            RowExistenceExpectation absent = RowExistenceExpectation.EXPECT_NOT_EXIST;
            RowExistenceExpectation present = RowExistenceExpectation.EXPECT_EXIST;
            RowUpdateChange change = new RowUpdateChange(table, row).put(column("c", there));
            change.setCondition(new Condition(there ? absent : present));
            refused(403, "OTSConditionCheckFail", FAILED, () -> send(change));
            change.setCondition(new Condition(there ? present : absent));
            send(change);
            same(read(table, row).get("c"), there);
        }
    }

    private static void conditions() throws Exception {
        PrimaryKey row = key("condition", 1);
        put(table, row, column("n", 5));
        List<CompareOperator> passing = Arrays.asList(CompareOperator.EQUAL,
            CompareOperator.GREATER_EQUAL, CompareOperator.LESS_EQUAL);
        for (CompareOperator operator : CompareOperator.values()) {
            RowUpdateChange change = new RowUpdateChange(table, row).put(column("done", true));
            Condition condition = new Condition(RowExistenceExpectation.IGNORE);
            condition.setColumnCondition(
                new SingleColumnValueCondition("n", operator, ColumnValue.fromLong(5)));
            change.setCondition(condition);
            if (passing.contains(operator)) {
                send(change);
            } else {
                refused(403, "OTSConditionCheckFail", FAILED, () -> send(change));
            }
        }
    }
}
