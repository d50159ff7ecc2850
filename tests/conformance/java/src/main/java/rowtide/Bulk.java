package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.filter.SingleColumnValueFilter;
import com.alicloud.openservices.tablestore.model.tunnel.BulkExportQueryCriteria;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** BulkImport and BulkExport, which count bytes instead of units. */
final class Bulk {
    static void checkAll() {
        check("bulk-import", Bulk::imports);
        check("bulk-import-errors", Bulk::importErrors);
        check("bulk-export", Bulk::exports);
        check("bulk-export-pages", Bulk::pages);
        check("bulk-export-errors", Bulk::exportErrors);
    }

    static BulkImportResponse send(String table, RowChange... changes) {
        BulkImportRequest request = new BulkImportRequest(table);
        request.addRowChanges(Arrays.asList(changes));
        return HASTY.bulkImport(request);
    }

    /** A row counts the names and values of its key (3 + 1 + 3 + 8 bytes) and of its cells. */
    private static void imports() {
        String table = table();
        put(table, key("a", 3), column("old", 1));
        BulkImportResponse told = send(table,
            putting(table, key("a", 1), column("c", "text"), column("n", 5)),
            new RowUpdateChange(table, key("a", 2)).put(column("c", new byte[100]))
                .deleteColumns("d"),
            new RowDeleteChange(table, key("a", 3)),
            putting(table, key("a", 4)));
        that("written", told.isAllSucceed());
        long[] bytes = {15 + 5 + 9, 15 + 101 + 1, 15, 15};
        for (int n = 0; n < bytes.length; n++) {
            BulkImportResponse.RowResult row = told.getRowResults().get(n);
            same(row.getIndex(), n);
            same(row.getConsumedCapacity().getCapacityUnit(), new CapacityUnit(0, 0));
            same(row.getConsumedCapacity().getCapacityDataSize(), new CapacityDataSize(0, bytes[n]));
        }
        same(read(table, key("a", 1)), Map.of("c", "text", "n", 5L));
        same(((byte[]) read(table, key("a", 2)).get("c")).length, 100);
        same(read(table, key("a", 3)), null);
        same(read(table, key("a", 4)), Map.of());
        drop(table);
    }

    private static void failed(BulkImportResponse.RowResult row, String code, String text) {
        same(row.isSucceed(), false);
        same(row.getError().getCode(), code);
        same(row.getError().getMessage(), text);
    }

    /** What depends on the table is a row's own error; a wrong shape or size refuses the request. */
    private static void importErrors() throws Exception {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        meta.addDefinedColumn("DC2", DefinedColumnType.INTEGER);
        String table = table(meta, null);
        PrimaryKey wrong = key(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.fromString("b"));
        List<BulkImportResponse.RowResult> rows = send(table, putting(table, wrong),
            putting(table, key("a", 1), column("DC2", new byte[1])),
            putting(table, key("a", 2), column("DC2", 7))).getRowResults();
        failed(rows.get(0), "OTSInvalidPK",
            "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.");
        failed(rows.get(1), "OTSParameterInvalid",
            "Invalid column type for column DC2 expect VT_INTEGER actual VT_BLOB");
        that("a good row", rows.get(2).isSucceed());
        failed(send("absent", putting("absent", key("a", 1))).getRowResults().get(0),
            "OTSObjectNotExist", "Requested table does not exist.");
        invalid("The length of attribute column: 'c' exceeds the MaxLength:2097152 with "
            + "CurrentLength:2097153.", () -> send(table, putting(table, key("a", 5)),
            putting(table, key("a", 1), column("c", new byte[2097153]))));
        same(read(table, key("a", 5)), null);
        invalid("Invalid column name: '#c'.",
            () -> send(table, putting(table, key("a", 1), column("#c", 1))));
        invalid("No operation is specified for table: '" + table + "'.", () -> send(table));
        invalid("Invalid table name: '3t'.", () -> send("3t", putting("3t", key("a", 1))));
        RowChange[] many = new RowChange[201];
        for (int n = 0; n < many.length; n++) {
            many[n] = putting(table, key("a", n));
        }
        invalid("Rows count exceeds the upper limit: 200.", () -> send(table, many));
        drop(table);
    }

    private static String filled(int rows, int bytes) {
        String table = table();
        for (int n = 0; n < rows; n++) {
            put(table, key("a", n), column("n", n), column("s", new String(new char[bytes])));
        }
        return table;
    }

    private static BulkExportQueryCriteria all(String table, DataBlockType type, String... names) {
        RangeRowQueryCriteria bounds = partition(table, "a");
        BulkExportQueryCriteria query = new BulkExportQueryCriteria(table);
        query.setDataBlockType(type);
        query.setInclusiveStartPrimaryKey(bounds.getInclusiveStartPrimaryKey());
        query.setExclusiveEndPrimaryKey(bounds.getExclusiveEndPrimaryKey());
        query.addColumnsToGet(names);
        return query;
    }

    /** Returns all rows of a range that fits in one answer. */
    static List<Row> exported(RangeRowQueryCriteria bounds, String... names) {
        BulkExportQueryCriteria query = new BulkExportQueryCriteria(bounds.getTableName());
        query.setDataBlockType(DataBlockType.DBT_PLAIN_BUFFER);
        query.setInclusiveStartPrimaryKey(bounds.getInclusiveStartPrimaryKey());
        query.setExclusiveEndPrimaryKey(bounds.getExclusiveEndPrimaryKey());
        query.addColumnsToGet(names);
        return new PlainBufferBlockParser(export(query).getRows()).getRows();
    }

    private static BulkExportResponse export(BulkExportQueryCriteria query) {
        return CLIENT.bulkExport(new BulkExportRequest(query));
    }

    private static void exports() {
        String table = filled(10, 20);
        send(table, new RowUpdateChange(table, key("a", 3)).deleteColumns("s"));
        BulkExportResponse plain = export(all(table, DataBlockType.DBT_PLAIN_BUFFER));
        same(plain.getDataBlockType(), DataBlockType.DBT_PLAIN_BUFFER);
        same(plain.getNextStartPrimaryKey(), null);
        same(plain.getConsumedCapacity().getCapacityUnit(), new CapacityUnit(0, 0));
        same(plain.getConsumedCapacity().getCapacityDataSize(),
            new CapacityDataSize(10 * (15 + 9 + 21) - 21, 0));
        List<Row> rows = new PlainBufferBlockParser(plain.getRows()).getRows();
        same(rows.size(), 10);
        same(rows.get(4).getPrimaryKey(), key("a", 4));
        same(values(rows.get(3)), Map.of("n", 3L));
        BulkExportResponse matrix =
            export(all(table, DataBlockType.DBT_SIMPLE_ROW_MATRIX, "s", "pk2", "n"));
        same(matrix.getDataBlockType(), DataBlockType.DBT_SIMPLE_ROW_MATRIX);
        SimpleRowMatrixBlockParser parser = new SimpleRowMatrixBlockParser(matrix.getRows());
        same(Arrays.asList(parser.parseFieldNames()), Arrays.asList("pk2", "n", "s"));
        same(parser.getPkCount(), 1);
        same(parser.hasEntirePrimaryKeys(), false);
        same(parser.getRowCount(), 10);
        for (int n = 0; parser.hasNext(); n++) {
            parser.next();
            same(parser.getLong(0), (long) n);
            same(parser.getLong(1), (long) n);
            same(parser.isNull(2), n == 3);
        }
        BulkExportQueryCriteria some = all(table, DataBlockType.DBT_SIMPLE_ROW_MATRIX, "n");
        some.setFilter(new SingleColumnValueFilter("n",
            SingleColumnValueFilter.CompareOperator.GREATER_EQUAL, ColumnValue.fromLong(8)));
        same(new SimpleRowMatrixBlockParser(export(some).getRows()).getRowCount(), 2);
        drop(table);
    }

    /** Five rows of a mebibyte take two answers in either form; the SDK's iterator joins them. */
    private static void pages() {
        String table = filled(5, 1024 * 1024);
        for (DataBlockType type : DataBlockType.values()) {
            BulkExportQueryCriteria query = all(table, type, "pk1", "pk2", "n", "s");
            List<Integer> counts = new ArrayList<>();
            for (PrimaryKey next = query.getInclusiveStartPrimaryKey(); next != null;) {
                query.setInclusiveStartPrimaryKey(next);
                BulkExportResponse told = export(query);
                that("at most 4 MiB", told.getRows().remaining() <= 4 * 1024 * 1024);
                counts.add(type == DataBlockType.DBT_PLAIN_BUFFER
                    ? new PlainBufferBlockParser(told.getRows()).getRows().size()
                    : new SimpleRowMatrixBlockParser(told.getRows()).getRowCount());
                next = told.getNextStartPrimaryKey();
            }
            same(counts, Arrays.asList(3, 2));
        }
        RangeIteratorParameter parameter = new RangeIteratorParameter(partition(table, "a"));
        parameter.addColumnsToGet(new String[] {"pk1", "pk2", "n"});
        long count = 0;
        for (Iterator<Row> rows = CLIENT.createBulkExportIterator(parameter); rows.hasNext();) {
            same(values(rows.next()).get("n"), count++);
        }
        same(count, 5L);
        drop(table);
    }

    private static void exportErrors() throws Exception {
        String table = table();
        invalid("DBT_SIMPLE_ROW_MATRIX need at least one column to get.",
            () -> export(all(table, DataBlockType.DBT_SIMPLE_ROW_MATRIX)));
        absent(() -> export(all("absent", DataBlockType.DBT_PLAIN_BUFFER)));
        invalid("Invalid column name: '#c'.",
            () -> export(all(table, DataBlockType.DBT_SIMPLE_ROW_MATRIX, "#c")));
        BulkExportQueryCriteria backward = all(table, DataBlockType.DBT_PLAIN_BUFFER);
        PrimaryKey low = backward.getInclusiveStartPrimaryKey();
        backward.setInclusiveStartPrimaryKey(backward.getExclusiveEndPrimaryKey());
        backward.setExclusiveEndPrimaryKey(low);
        invalid("Begin key must less than end key in FORWARD", () -> export(backward));
        BulkExportQueryCriteria wrong = all(table, DataBlockType.DBT_PLAIN_BUFFER);
        wrong.setInclusiveStartPrimaryKey(PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("pk1", PrimaryKeyValue.INF_MIN).build());
        refused(400, "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2.",
            () -> export(wrong));
        drop(table);
    }
}
