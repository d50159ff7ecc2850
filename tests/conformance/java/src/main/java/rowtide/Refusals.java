package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** What a row's operation is refused for: status, code and text. */
final class Refusals {
    private static final String TIME = "Timestamp must be in range [0, INT64_MAX/1000).";
    private static String table;

    static void checkAll() {
        table = table();
        check("key-errors", Refusals::keys);
        check("column-name-errors", Refusals::columnNames);
        check("read-errors", Refusals::reads);
        check("range-errors", Refusals::ranges);
        check("write-errors", Refusals::writes);
        check("return-errors", Refusals::returns);
        check("version-errors", Refusals::versions);
        check("update-refused", Refusals::updateRefused);
        drop(table);
    }

    private static PrimaryKey pk(Object... parts) {
        PrimaryKeyBuilder builder = PrimaryKeyBuilder.createPrimaryKeyBuilder();
        for (int n = 0; n < parts.length; n += 2) {
            Object value = parts[n + 1];
            PrimaryKeyValue shown = value instanceof Integer
                ? PrimaryKeyValue.fromLong((Integer) value)
                : value instanceof byte[] ? PrimaryKeyValue.fromBinary((byte[]) value)
                : PrimaryKeyValue.fromString((String) value);
            builder.addPrimaryKeyColumn((String) parts[n], shown);
        }
        return builder.build();
    }

    private static List<Scenario> everyCall(PrimaryKey key) {
        return Arrays.asList(() -> read(table, key), () -> put(table, key),
            () -> send(new RowUpdateChange(table, key).put(column("c", 1))),
            () -> delete(table, key));
    }

    /** A wrong key refuses an operation, but in a batch its row alone. */
    private static void keys() throws Exception {
        Object[] four = {"a", "1", "b", "2", "c", "3", "d", "4"};
        wrongKey("Validate PK size fail. Input: 1, Meta: 2.", pk("pk1", "a"));
        wrongKey("Validate PK size fail. Input: 3, Meta: 2.", pk("pk1", "a", "pk2", 1, "pk3", 1));
        wrongKey("Validate PK size fail. Input: 4, Meta: 2.", pk(four));
        wrongKey("Validate PK name fail. Input: pk2, Meta: pk1.", pk("pk2", 1, "pk1", "a"));
        wrongKey("Validate PK name fail. Input: PK2, Meta: pk2.", pk("pk1", "a", "PK2", "a"));
        wrongKey("Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.",
            pk("pk1", 1, "PK2", 1));
        wrongKey("Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING.",
            pk("pk1", new byte[] {1}, "pk2", 1));
        wrongKey("Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
            pk("pk1", "a", "pk2", "1"));
        Object[] five = Arrays.copyOf(four, 10);
        five[8] = "e";
        five[9] = "5";
        for (Scenario call : everyCall(pk(five))) {
            invalid("The number of primary key columns must be in range: [1, 4].", call);
        }
        for (PrimaryKeyValue infinite : Arrays.asList(PrimaryKeyValue.INF_MIN,
                PrimaryKeyValue.INF_MAX)) {
            PrimaryKey key = key(PrimaryKeyValue.fromString("a"), infinite);
            String text = (infinite == PrimaryKeyValue.INF_MIN ? "VT_INF_MIN" : "VT_INF_MAX")
                + " is an invalid type for the primary key.";
            for (Scenario call : everyCall(key)) {
                invalid(text, call);
            }
            invalid(text, () -> BatchWrites.send(false, putting(table, key)));
        }
    }

    private static void wrongKey(String text, PrimaryKey key) throws Exception {
        for (Scenario call : everyCall(key)) {
            refused(400, "OTSInvalidPK", text, call);
        }
        List<BatchWriteRowResponse.RowResult> rows = BatchWrites.send(false, putting(table, key),
            putting(table, key("a", 1))).getRowStatus(table);
        same(rows.get(0).getError().getCode(), "OTSInvalidPK");
        same(rows.get(0).getError().getMessage(), text);
        that("the other row", rows.get(1).isSucceed());
    }

    private static SingleRowQueryCriteria query() {
        return criteria(table, key("names", 1));
    }

    /** A name that is no name is refused wherever one may stand. */
    private static void columnNames() throws Exception {
        PrimaryKey row = key("names", 1);
        for (String wrong : new String[] {"#", "#abc", "#公司", "# ", "n".repeat(256)}) {
            String text = "Invalid column name: '" + wrong + "'.";
            invalid(text, () -> put(table, row, column(wrong, 1)));
            invalid(text, () -> BatchWrites.send(false, putting(table, row, column(wrong, 1))));
            for (RowUpdateChange change : Arrays.asList(
                    new RowUpdateChange(table, row).put(column(wrong, 1)),
                    new RowUpdateChange(table, row).deleteColumns(wrong),
                    new RowUpdateChange(table, row).deleteColumn(wrong, 1),
                    new RowUpdateChange(table, row).increment(column(wrong, 1)))) {
                invalid(text, () -> send(change));
            }
            SingleRowQueryCriteria chosen = query();
            chosen.addColumnsToGet(new String[] {"c", wrong});
            invalid(text, () -> get(chosen));
            SingleRowQueryCriteria started = query();
            started.setStartColumn(wrong);
            invalid(text, () -> get(started));
            SingleRowQueryCriteria ended = query();
            ended.setEndColumn(wrong);
            invalid(text, () -> get(ended));
        }
        List<String> good = new ArrayList<>(Arrays.asList("公司", "\n", "\r", " ", " a", "a#", "0",
            "n".repeat(255), "公".repeat(85)));
        good.addAll(Arrays.asList(".:'\"$&*()/\\".split("")));
        Column[] cells = good.stream().map(name -> column(name, name)).toArray(Column[]::new);
        put(table, row, cells);
        same(read(table, row).size(), good.size());
        for (String allowed : good) {
            SingleRowQueryCriteria chosen = query();
            chosen.addColumnsToGet(allowed);
            same(values(get(chosen).getRow()), Map.of(allowed, allowed));
        }
    }

    private static void reads() throws Exception {
        SingleRowQueryCriteria many = query();
        for (int n = 0; n < 1024; n++) {
            many.addColumnsToGet("c" + n);
        }
        get(many);
        many.addColumnsToGet("more");
        invalid("The number of columns from the request exceeds the limit, limit count: 1024, "
            + "column count: 1025.", () -> get(many));
        SingleRowQueryCriteria unversioned =
            new SingleRowQueryCriteria(table, key("names", 1));
        invalid("No version condition is specified.", () -> get(unversioned));
        for (TimeRange times : new TimeRange[] {new TimeRange(Long.MAX_VALUE / 1000, Long.MAX_VALUE),
                new TimeRange(Long.MAX_VALUE / 1000)}) {
            SingleRowQueryCriteria late = query();
            late.setTimeRange(times);
            invalid(TIME, () -> get(late));
        }
        absent(() -> read("absent", key("a", 1)));
    }

    private static void attempt(PrimaryKey from, PrimaryKey to, Direction direction) {
        RangeRowQueryCriteria query = new RangeRowQueryCriteria(table);
        query.setMaxVersions(1);
        query.setDirection(direction);
        query.setInclusiveStartPrimaryKey(from);
        query.setExclusiveEndPrimaryKey(to);
        CLIENT.getRange(new GetRangeRequest(query));
    }

    private static void ranges() throws Exception {
        PrimaryKey low = partition(table, "a").getInclusiveStartPrimaryKey();
        PrimaryKey high = partition(table, "a").getExclusiveEndPrimaryKey();
        attempt(low, high, Direction.FORWARD);
        attempt(high, low, Direction.BACKWARD);
        String forward = "Begin key must less than end key in FORWARD";
        String backward = "Begin key must more than end key in BACKWARD";
        invalid(forward, () -> attempt(high, low, Direction.FORWARD));
        invalid(forward, () -> attempt(key("a", 1), key("a", 1), Direction.FORWARD));
        invalid(backward, () -> attempt(low, high, Direction.BACKWARD));
        invalid(backward, () -> attempt(low, low, Direction.BACKWARD));
        refused(400, "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2.",
            () -> attempt(pk("pk1", "a"), high, Direction.FORWARD));
        refused(400, "OTSInvalidPK", "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
            () -> attempt(low, pk("pk1", "a", "pk2", "b"), Direction.FORWARD));
        invalid("The length of primary key column: 'pk1' exceeds the MaxLength:1024 with "
            + "CurrentLength:1025.",
            () -> attempt(key("k".repeat(1025), 1), high, Direction.FORWARD));
        RangeRowQueryCriteria unversioned = new RangeRowQueryCriteria(table);
        unversioned.setInclusiveStartPrimaryKey(low);
        unversioned.setExclusiveEndPrimaryKey(high);
        invalid("No version condition is specified.",
            () -> CLIENT.getRange(new GetRangeRequest(unversioned)));
    }

    private static void writes() throws Exception {
        PrimaryKey row = key("writes", 1);
        put(table, row, column("s", "text"), column("n", 1));
        invalid("Attribute column is missing.", () -> send(new RowUpdateChange(table, row)));
        RowUpdateChange many = new RowUpdateChange(table, row);
        for (int n = 0; n < 1025; n++) {
            many.put(column("c" + n, 1));
        }
        invalid("The number of attribute columns exceeds the limit, limit count: 1024, column "
            + "count: 1025.", () -> send(many));
        invalid("The length of attribute column: 'c' exceeds the MaxLength:2097152 with "
            + "CurrentLength:2097153.", () -> send(
                new RowUpdateChange(table, row).put(column("c", "x".repeat(2097153)))));
        invalid(null, () -> send(new RowUpdateChange(table, row).increment(column("s", 1))));
        invalid(null, () -> send(new RowUpdateChange(table, row).increment(column("n", 1))
            .put(column("n", 1))));
        same(read(table, row), Map.of("s", "text", "n", 1L));
        absent(() -> put("absent", row));
        absent(() -> delete("absent", row));
    }

    /** A wrong wish for what is returned refuses the write itself. */
    private static void returns() throws Exception {
        PrimaryKey row = key("returns", 1);
        RowUpdateChange other = new RowUpdateChange(table, row).increment(column("n", 1));
        other.setReturnType(ReturnType.RT_AFTER_MODIFY);
        other.addReturnColumn("s");
        invalid(null, () -> send(other));
        RowUpdateChange both = new RowUpdateChange(table, row).increment(column("n", 1));
        both.setReturnType(ReturnType.RT_PK);
        both.addReturnColumn("n");
        invalid(null, () -> send(both));
        same(read(table, row), null);
    }

    /** A version must be in range and near the server's clock. */
    private static void versions() throws Exception {
        PrimaryKey row = key("versions", 1);
        for (long at : new long[] {Long.MAX_VALUE / 1000, Long.MAX_VALUE}) {
            invalid(TIME, () -> put(table, row, column("c", 1, at)));
            invalid(TIME, () -> send(new RowUpdateChange(table, row).deleteColumn("c", at)));
        }
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("k", PrimaryKeyType.STRING);
        CLIENT.createTable(new CreateTableRequest(meta, new TableOptions(-1, 1)));
        invalid(null, () -> put(meta.getTableName(), pk("k", "a"), column("c", 1, 1000)));
        drop(meta.getTableName());
    }

    private static void updateRefused() throws Exception {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("k", PrimaryKeyType.STRING);
        TableOptions options = new TableOptions(-1, 1);
        options.setAllowUpdate(false);
        CLIENT.createTable(new CreateTableRequest(meta, options));
        String name = meta.getTableName();
        RowUpdateChange change = new RowUpdateChange(name, pk("k", "a")).put(column("c", 1));
        String text = "Update operation is not allowed in this table";
        invalid(text, () -> send(change));
        invalid(text, () -> BatchWrites.send(false, change));
        put(name, pk("k", "a"), column("c", 1));
        same(read(name, pk("k", "a")), Map.of("c", 1L));
        drop(name);
    }
}
