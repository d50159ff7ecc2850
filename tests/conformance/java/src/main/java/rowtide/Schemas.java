package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.InternalClient;
import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.model.*;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;

/** What a table may be: names, keys, defined columns, partitions; and where it can be cut. */
final class Schemas {
    private static final int MIB = 1024 * 1024;

    static void checkAll() {
        check("table-limits", Schemas::limits);
        check("table-option-errors", Schemas::optionErrors);
        check("table-partition-errors", Schemas::partitionErrors);
        check("defined-columns", Schemas::defined);
        check("defined-column-errors", Schemas::definedErrors);
        check("split-points", Schemas::splits);
        check("split-point-errors", Schemas::splitErrors);
    }

    private static void create(String name, String... columns) {
        TableMeta meta = new TableMeta(name);
        for (String column : columns) {
            meta.addPrimaryKeyColumn(column, PrimaryKeyType.STRING);
        }
        CLIENT.createTable(new CreateTableRequest(meta, new TableOptions(-1, 1)));
    }

    private static void limits() throws Exception {
        for (String name : new String[] {"0", "3t", "-", "T#", "表", "a b", "n".repeat(256)}) {
            String text = "Invalid table name: '" + name + "'.";
            invalid(text, () -> create(name, "k"));
            invalid(text, () -> CLIENT.describeTable(new DescribeTableRequest(name)));
            invalid(text, () -> drop(name));
            invalid(text, () -> put(name, key("a", 1)));
            invalid(text, () -> BatchWrites.send(false, putting(name, key("a", 1))));
            MultiRowQueryCriteria query = new MultiRowQueryCriteria(name);
            query.setMaxVersions(1);
            query.addRow(key("a", 1));
            BatchGetRowRequest request = new BatchGetRowRequest();
            request.addMultiRowQueryCriteria(query);
            invalid(text, () -> CLIENT.batchGetRow(request));
        }
        for (String name : new String[] {"_0", "_T", "A0", "n".repeat(255)}) {
            create(name, "k");
            drop(name);
        }
        invalid("The number of primary key columns must be in range: [1, 4].",
            () -> create("java_limits", "a", "b", "c", "d", "e"));
        for (String column : new String[] {"#", "#abc", "#公司", "# ", "n".repeat(256)}) {
            invalid("Invalid column name: '" + column + "'.",
                () -> create("java_limits", column));
        }
        for (String column : new String[] {"公司", "a.:'\"$&*()/\\\n\r b", "n".repeat(255)}) {
            create("java_limits", column);
            drop("java_limits");
        }
        TableMeta meta = new TableMeta("java_limits");
        meta.addPrimaryKeyColumn("k", PrimaryKeyType.INTEGER, PrimaryKeyOption.AUTO_INCREMENT);
        invalid(null,
            () -> CLIENT.createTable(new CreateTableRequest(meta, new TableOptions(-1, 1))));
    }

    private static void optionErrors() throws Exception {
        String table = table();
        UpdateTableRequest full = new UpdateTableRequest(table);
        full.setTableOptionsForUpdate(new TableOptions(true, true));
        try {
            CLIENT.updateTable(full);
            throw new AssertionError("updateFullRow was changed");
        } catch (TableStoreException told) {
            same(told.getErrorCode(), "OTSParameterInvalid");
            same(told.getHttpStatus(), 400);
            that(told.getMessage(), told.getMessage().contains("contain updateFullRow"));
        }
        for (int seconds : new int[] {1, 86399}) {
            UpdateTableRequest request = new UpdateTableRequest(table);
            request.setTableOptionsForUpdate(new TableOptions(seconds, 1));
            invalid(null, () -> CLIENT.updateTable(request));
        }
        UpdateTableRequest longer = new UpdateTableRequest(table);
        longer.setStreamSpecification(new StreamSpecification(true, 169));
        invalid(null, () -> CLIENT.updateTable(longer));
        UpdateTableRequest missing = new UpdateTableRequest("absent");
        missing.setTableOptionsForUpdate(new TableOptions(-1, 1));
        absent(() -> CLIENT.updateTable(missing));
        same(CLIENT.describeTable(new DescribeTableRequest(table)).getTableOptions()
            .getMaxVersions(), 5);
        drop(table);
    }

    private static void cut(PrimaryKeyType type, PrimaryKeyValue... points) throws Exception {
        InternalClient internal = new InternalClient(ENDPOINT, KEY_ID, SECRET, INSTANCE);
        try {
            TableMeta meta = meta();
            meta.addPrimaryKeyColumn("k", type);
            CreateTableRequestEx request = new CreateTableRequestEx(meta, new TableOptions(-1, 1));
            request.setSplitPoints(Arrays.asList(points));
            internal.createTableEx(request, null).get();
        } catch (ExecutionException error) {
            throw (Exception) error.getCause();
        } finally {
            internal.shutdown();
        }
    }

    private static void partitionErrors() throws Exception {
        PrimaryKeyValue[] eleven = new PrimaryKeyValue[11];
        for (int n = 0; n < eleven.length; n++) {
            eleven[n] = PrimaryKeyValue.fromLong(n);
        }
        invalid("The count of partitions cannot be greater than 10",
            () -> cut(PrimaryKeyType.INTEGER, eleven));
        for (long edge : new long[] {Long.MIN_VALUE, Long.MAX_VALUE}) {
            invalid("The value of partition range can not be INT64_MIN or INT64_MAX.",
                () -> cut(PrimaryKeyType.INTEGER, PrimaryKeyValue.fromLong(edge)));
        }
        invalid("The value of partition range can not be empty string.",
            () -> cut(PrimaryKeyType.STRING, PrimaryKeyValue.fromString("")));
        invalid("The value of partition range can not be empty binary.",
            () -> cut(PrimaryKeyType.BINARY, PrimaryKeyValue.fromBinary(new byte[0])));
    }

    private static List<DefinedColumnSchema> shown(String table) {
        return CLIENT.describeTable(new DescribeTableRequest(table)).getTableMeta()
            .getDefinedColumnsList();
    }

    private static void define(String table, DefinedColumnSchema... columns) {
        AddDefinedColumnRequest request = new AddDefinedColumnRequest();
        request.setTableName(table);
        for (DefinedColumnSchema column : columns) {
            request.addDefinedColumn(column.getName(), column.getType());
        }
        CLIENT.addDefinedColumn(request);
    }

    private static void undefine(String table, String... columns) {
        DeleteDefinedColumnRequest request = new DeleteDefinedColumnRequest();
        request.setTableName(table);
        for (String column : columns) {
            request.addDefinedColumn(column);
        }
        CLIENT.deleteDefinedColumn(request);
    }

    private static void defined() {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        DefinedColumnSchema[] columns = new DefinedColumnSchema[5];
        for (DefinedColumnType type : DefinedColumnType.values()) {
            columns[type.ordinal()] = new DefinedColumnSchema("c" + type.ordinal(), type);
        }
        meta.addDefinedColumns(Arrays.copyOf(columns, 3));
        String table = table(meta, null);
        same(shown(table), Arrays.asList(columns).subList(0, 3));
        define(table, columns[3], columns[4]);
        same(shown(table), Arrays.asList(columns));
        put(table, key("a", 1), column("c0", "of any type"), column("c3", "text"));
        undefine(table, "c1", "c3");
        same(shown(table), Arrays.asList(columns[0], columns[2], columns[4]));
        same(read(table, key("a", 1)).size(), 2);
        drop(table);
    }

    private static void definedErrors() throws Exception {
        String table = table();
        DefinedColumnSchema[] many = new DefinedColumnSchema[33];
        for (int n = 0; n < many.length; n++) {
            many[n] = new DefinedColumnSchema("c" + n, DefinedColumnType.INTEGER);
        }
        String limit = "The number of defined columns must be in range: [0, 32].";
        invalid(limit, () -> define(table, many));
        define(table, Arrays.copyOf(many, 32));
        invalid(limit, () -> define(table, many[32]));
        undefine(table, "c31");
        for (String twice : new String[] {"c0", "pk1"}) {
            invalid(null, () -> define(table,
                new DefinedColumnSchema(twice, DefinedColumnType.STRING)));
        }
        invalid("Invalid column name: '#c'.", () -> define(table,
            new DefinedColumnSchema("#c", DefinedColumnType.STRING)));
        invalid(null, () -> undefine(table, "unknown"));
        absent(() -> define("absent", many[0]));
        absent(() -> undefine("absent", "c0"));
        same(shown(table).size(), 31);
        drop(table);
    }

    private static ComputeSplitsBySizeResponse cuts(String table, long size, long unit) {
        ComputeSplitsBySizeRequest request = new ComputeSplitsBySizeRequest();
        request.setTableName(table);
        request.setSplitSizeInByte(size, unit);
        return CLIENT.computeSplitsBySize(request);
    }

    /** Cuts ten rows of a mebibyte: the parts follow one another and hold every row. */
    private static void splits() {
        String table = table();
        ComputeSplitsBySizeResponse whole =
            CLIENT.computeSplitsBySize(new ComputeSplitsBySizeRequest(table, 1));
        same(whole.getSplits().size(), 1);
        same(whole.getSplits().get(0).getLocation().length(), 32);
        same(whole.getConsumedCapacity().getCapacityUnit(), new CapacityUnit(1, 0));
        same(whole.getPrimaryKeySchema().size(), 2);
        for (int n = 0; n < 10; n++) {
            put(table, key("a", n), column("c", new byte[MIB]));
        }
        List<Split> parts = cuts(table, 2, MIB).getSplits();
        that("about five parts, not " + parts.size(), parts.size() >= 4 && parts.size() <= 6);
        int found = 0;
        PrimaryKey low = key(PrimaryKeyValue.INF_MIN, PrimaryKeyValue.INF_MIN);
        for (Split part : parts) {
            same(part.getLocation().length(), 32);
            same(part.getLowerBound(), low);
            low = part.getUpperBound();
            RangeRowQueryCriteria query = new RangeRowQueryCriteria(table);
            query.setMaxVersions(1);
            query.addColumnsToGet("pk1");
            query.setInclusiveStartPrimaryKey(part.getLowerBound());
            query.setExclusiveEndPrimaryKey(part.getUpperBound());
            found += CLIENT.getRange(new GetRangeRequest(query)).getRows().size();
        }
        same(low, key(PrimaryKeyValue.INF_MAX, PrimaryKeyValue.INF_MAX));
        same(found, 10);
        ComputeSplitsBySizeRequest few = new ComputeSplitsBySizeRequest();
        few.setTableName(table);
        few.setSplitSizeInByte(2, MIB);
        few.setSplitPointLimit(1);
        same(CLIENT.computeSplitsBySize(few).getSplits().size(), 2);
        drop(table);
    }

    private static void splitErrors() throws Exception {
        String table = table();
        invalid("The split_size should be greater than 0.", () -> cuts(table, 0, MIB));
        invalid("The split_size should be greater than 0.", () -> cuts(table, -1, MIB));
        invalid("The split_size_unit_in_byte should be greater equal than: 1048576",
            () -> cuts(table, 1, MIB - 1));
        absent(() -> cuts("absent", 1, MIB));
        drop(table);
    }
}
