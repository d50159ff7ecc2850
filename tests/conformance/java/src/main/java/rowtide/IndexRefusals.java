package rowtide;

import static rowtide.Conformance.*;
import static rowtide.Indexes.*;

import com.alicloud.openservices.tablestore.model.*;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** What an index may not be, and what may not be done to one; the texts of it. */
final class IndexRefusals {
    private static final TableOptions PLAIN = new TableOptions(-1, 1);

    static void checkAll() {
        check("index-limits", IndexRefusals::limits);
        check("index-edges", IndexRefusals::edges);
        check("index-errors", IndexRefusals::errors);
        check("index-names", IndexRefusals::names);
        check("index-options", IndexRefusals::options);
        check("index-read-only", IndexRefusals::readOnly);
        check("index-values", IndexRefusals::values);
    }

    /** Holds an index to its refusal by CreateIndex on each table and by CreateTable. */
    private static void misfit(String text, IndexMeta index, String... tables) throws Exception {
        for (String table : tables) {
            invalid(text, () -> add(table, index, true));
        }
        invalid(text, () -> indexed(index));
    }

    private static IndexMeta sized(int keys, int columns) {
        IndexMeta index = index("java_sized", GLOBAL, Arrays.asList());
        for (int n = 0; n < keys; n++) {
            index.addPrimaryKeyColumn("k" + n);
        }
        for (int n = 0; n < columns; n++) {
            index.addDefinedColumn("c" + n);
        }
        return index;
    }

    /** The sizes of an index are looked at before its table is. */
    private static void limits() throws Exception {
        String table = indexed();
        String keys = "The number of primary key columns must be in range: [1, 4] in index.";
        misfit(keys, sized(0, 0), table, "absent");
        misfit(keys, sized(5, 0), table, "absent");
        misfit("The number of attribute columns must be in range: [0, 32] in index.",
            sized(1, 33), table, "absent");
        absent(() -> add("absent", byN(GLOBAL), true));
        absent(() -> remove("absent", "java_sized"));
        String quota = "Number of index per table exceeds the quota:5.";
        IndexMeta[] many = new IndexMeta[6];
        for (int n = 0; n < many.length; n++) {
            many[n] = byN(LOCAL);
        }
        for (int n = 0; n < 5; n++) {
            add(table, many[n], false);
        }
        invalid(quota, () -> add(table, many[5], false));
        invalid(quota, () -> indexed(many));
        same(shown(table).size(), 5);
        drop(table);
        drop(indexed(Arrays.copyOf(many, 5)));
    }

    /** Four columns of its own, then the table's key, and every defined column are within them. */
    private static void edges() throws Exception {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        IndexMeta fullest = index("java_fullest", LOCAL, Arrays.asList("pk1"));
        RowPutChange change = putting(meta.getTableName(), key("a", 1));
        for (int n = 0; n < 32; n++) {
            meta.addDefinedColumn("c" + n, DefinedColumnType.INTEGER);
            fullest.addDefinedColumn("c" + n);
            change.addColumn(column("c" + n, n));
        }
        IndexMeta widest =
            index("java_widest", LOCAL, Arrays.asList("pk1", "c0", "c1", "c2"), "c3");
        String table = create(meta, PLAIN, widest, fullest);
        same(shown(table).get(0).getPrimaryKeyList(), Arrays.asList("pk1", "c0", "c1", "c2"));
        same(shown(table).get(1).getDefinedColumnsList().size(), 32);
        CLIENT.putRow(new PutRowRequest(change));
        same(read("java_fullest", key("a", 1)).size(), 32);
        PrimaryKeyBuilder five = PrimaryKeyBuilder.createPrimaryKeyBuilder();
        five.addPrimaryKeyColumn("pk1", PrimaryKeyValue.fromString("a"));
        for (int n = 0; n < 3; n++) {
            five.addPrimaryKeyColumn("c" + n, PrimaryKeyValue.fromLong(n));
        }
        five.addPrimaryKeyColumn("pk2", PrimaryKeyValue.fromLong(1));
        same(read("java_widest", five.build()), Map.of("c3", 3L));
        drop(table);
    }

    private static void errors() throws Exception {
        String table = indexed();
        String unknown = "Column 'm' of index 'x' is not a defined column.";
        misfit(unknown, index("x", GLOBAL, Arrays.asList("m")), table);
        misfit(unknown, index("x", LOCAL, Arrays.asList("pk1"), "m"), table);
        misfit("VT_DOUBLE is an invalid type for the primary key.",
            index("x", GLOBAL, Arrays.asList("d")), table);
        String twice = "Duplicated column name: 'n' in index 'x'.";
        misfit(twice, index("x", GLOBAL, Arrays.asList("n", "n")), table);
        misfit(twice, index("x", GLOBAL, Arrays.asList("n"), "n"), table);
        misfit("Invalid column name: '#n'.", index("x", GLOBAL, Arrays.asList("#n")), table);
        misfit("The first primary key column of local index 'x' must be 'pk1', the table's, "
            + "but is 'n'.", index("x", LOCAL, Arrays.asList("n", "pk1")), table);
        IndexMeta index = byN(GLOBAL);
        add(table, index, false);
        DeleteDefinedColumnRequest used = new DeleteDefinedColumnRequest();
        used.setTableName(table);
        used.addDefinedColumn("s");
        invalid("Defined column 's' is used by index '" + index.getIndexName() + "'.",
            () -> CLIENT.deleteDefinedColumn(used));
        remove(table, index.getIndexName());
        CLIENT.deleteDefinedColumn(used);
        drop(table);
    }

    private static void names() throws Exception {
        String table = indexed();
        IndexMeta index = byN(GLOBAL);
        add(table, index, false);
        for (String name : new String[] {"3x", "x-y", "n".repeat(256)}) {
            String text = "Invalid table name: '" + name + "'.";
            misfit(text, index(name, GLOBAL, Arrays.asList("n")), table, "absent");
            invalid(text, () -> remove(table, name));
        }
        String text = "Requested table already exists.";
        for (String name : new String[] {index.getIndexName(), table}) {
            IndexMeta taken = index(name, LOCAL, Arrays.asList("pk1"));
            refused(409, "OTSObjectAlreadyExist", text, () -> add(table, taken, false));
            refused(409, "OTSObjectAlreadyExist", text, () -> indexed(taken));
        }
        TableMeta taken = columns();
        taken.setTableName(index.getIndexName());
        refused(409, "OTSObjectAlreadyExist", text, () -> create(taken, PLAIN));
        drop(table);
    }

    /** Versions and a lifetime would change what is visible without a write. */
    private static void options() throws Exception {
        String indexed = indexed(byN(LOCAL));
        TableOptions[] wrong = {new TableOptions(-1, 2), new TableOptions(86400, 1)};
        String[] texts = {"The max_versions of a table with an index must be 1, but is 2.",
            "The time_to_live of a table with an index must be -1, but is 86400."};
        for (int n = 0; n < wrong.length; n++) {
            TableOptions options = wrong[n];
            String table = create(columns(), options);
            invalid(texts[n], () -> add(table, byN(GLOBAL), false));
            invalid(texts[n], () -> create(columns(), options, byN(GLOBAL)));
            UpdateTableRequest request = new UpdateTableRequest(indexed);
            request.setTableOptionsForUpdate(options);
            invalid(texts[n], () -> CLIENT.updateTable(request));
            drop(table);
        }
        drop(indexed);
    }

    private static void readOnly() throws Exception {
        for (IndexType kind : IndexType.values()) {
            IndexMeta index = byN(kind);
            String table = indexed(index);
            String name = index.getIndexName();
            PrimaryKey row = entryKey(index, "a", 1, 1);
            PrimaryKey first = PrimaryKeyBuilder.createPrimaryKeyBuilder()
                .addPrimaryKeyColumn(row.getPrimaryKeyColumn(0)).build();
            UpdateTableRequest request = new UpdateTableRequest(name);
            request.setTableOptionsForUpdate(new TableOptions(-1, 1));
            AddDefinedColumnRequest more = new AddDefinedColumnRequest();
            more.setTableName(name);
            more.addDefinedColumn("x", DefinedColumnType.STRING);
            List<Scenario> calls = Arrays.asList(
                () -> put(name, row, column("s", "x")),
                () -> send(new RowUpdateChange(name, row).put(column("s", "x"))),
                () -> Conformance.delete(name, row),
                () -> BatchWrites.send(false, putting(name, row, column("s", "x"))),
                () -> BatchWrites.send(true, putting(name, row, column("s", "x"))),
                () -> Bulk.send(name, putting(name, row, column("s", "x"))),
                () -> CLIENT.updateTable(request),
                () -> CLIENT.addDefinedColumn(more),
                () -> drop(name),
                () -> add(name, byN(GLOBAL), false),
                () -> Transactions.start(name, first));
            for (Scenario call : calls) {
                invalid("Table '" + name + "' is an index: it can only be read, and dropped.", call);
            }
            drop(table);
        }
    }

    /** A write that an index could not hold is refused, and changes neither. */
    private static void values() throws Exception {
        IndexMeta local = byN(LOCAL);
        IndexMeta other = index(meta().getTableName(), GLOBAL, Arrays.asList("b"));
        String table = indexed(local, other);
        String wrong = "Invalid column type for column n expect VT_INTEGER actual VT_STRING";
        String wide = "The length of primary key column: 'b' exceeds the MaxLength:1024 with "
            + "CurrentLength:1025.";
        Map<Column, String> cells =
            Map.of(column("n", "1"), wrong, column("b", new byte[1025]), wide);
        for (Map.Entry<Column, String> cell : cells.entrySet()) {
            invalid(cell.getValue(), () -> put(table, key("a", 1), cell.getKey()));
            invalid(cell.getValue(),
                () -> send(new RowUpdateChange(table, key("a", 1)).put(cell.getKey())));
        }
        same(read(table, key("a", 1)), null);
        same(range(local, Direction.FORWARD, 10).size(), 0);
        put(table, key("a", 1), column("d", "no index looks at it"), column("n", 1),
            column("b", new byte[1024]));
        same(range(local, Direction.FORWARD, 10).size(), 1);
        drop(table);
    }
}
