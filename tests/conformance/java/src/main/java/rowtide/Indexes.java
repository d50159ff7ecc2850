package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.search.SyncStat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * Secondary indexes: what they hold, and how they come and go. A local index is held to its rows at
 * once, a global one when it has caught up.
 */
final class Indexes {
    private static final long CAUGHT_UP_MS_MAX = 30_000;
    private static final IndexType[] KINDS = IndexType.values();
    static final IndexType LOCAL = IndexType.IT_LOCAL_INDEX;
    static final IndexType GLOBAL = IndexType.IT_GLOBAL_INDEX;

    interface Reader {
        Object read();
    }

    static void checkAll() {
        check("index-describe", Indexes::described);
        check("index-rows", Indexes::rows);
        check("index-row-by-key", Indexes::byKey);
        check("index-batch", Indexes::batches);
        check("index-batch-atomic", Indexes::atomic);
        check("index-bulk", Indexes::bulk);
        check("index-transaction", Indexes::transactions);
        check("index-transaction-read", Indexes::transactionReads);
        check("index-base-data", Indexes::baseData);
        check("index-later-writes", Indexes::laterWrites);
        check("index-drop", Indexes::dropped);
        check("index-table-drop", Indexes::droppedTable);
    }

    /** Returns a table to be: keyed pk1 STRING, pk2 INTEGER, with defined columns n, s, b, d. */
    static TableMeta columns() {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        meta.addDefinedColumn("n", DefinedColumnType.INTEGER);
        meta.addDefinedColumn("s", DefinedColumnType.STRING);
        meta.addDefinedColumn("b", DefinedColumnType.BINARY);
        meta.addDefinedColumn("d", DefinedColumnType.DOUBLE);
        return meta;
    }

    static String indexed(IndexMeta... indexes) {
        return create(columns(), new TableOptions(-1, 1), indexes);
    }

    static String create(TableMeta meta, TableOptions options, IndexMeta... indexes) {
        CreateTableRequest request = new CreateTableRequest(meta, options);
        Arrays.asList(indexes).forEach(request::addIndex);
        CLIENT.createTable(request);
        return meta.getTableName();
    }

    static IndexMeta index(String name, IndexType type, List<String> key, String... columns) {
        IndexMeta index = new IndexMeta(name);
        index.setIndexType(type);
        index.setIndexUpdateMode(type == LOCAL
            ? IndexUpdateMode.IUM_SYNC_INDEX : IndexUpdateMode.IUM_ASYNC_INDEX);
        key.forEach(index::addPrimaryKeyColumn);
        Arrays.asList(columns).forEach(index::addDefinedColumn);
        return index;
    }

    /** Returns an index by the column n that keeps s, of either kind, under a fresh name. */
    static IndexMeta byN(IndexType type) {
        List<String> key = type == LOCAL ? Arrays.asList("pk1", "n") : Arrays.asList("n");
        return index(meta().getTableName(), type, key, "s");
    }

    static void add(String table, IndexMeta index, boolean base) {
        CLIENT.createIndex(new CreateIndexRequest(table, index, base));
    }

    static void remove(String table, String index) {
        CLIENT.deleteIndex(new DeleteIndexRequest(table, index));
    }

    static List<IndexMeta> shown(String table) {
        return CLIENT.describeTable(new DescribeTableRequest(table)).getIndexMeta();
    }

    /** Returns a key of an index by n: its order is pk1, n, pk2 in a local one, else n, pk1, pk2. */
    static PrimaryKey entryKey(IndexMeta index, Object pk1, Object n, Object pk2) {
        PrimaryKeyBuilder builder = PrimaryKeyBuilder.createPrimaryKeyBuilder();
        if (index.getIndexType() == LOCAL) {
            return builder.addPrimaryKeyColumn("pk1", keyValue(pk1))
                .addPrimaryKeyColumn("n", keyValue(n)).addPrimaryKeyColumn("pk2", keyValue(pk2))
                .build();
        }
        return builder.addPrimaryKeyColumn("n", keyValue(n))
            .addPrimaryKeyColumn("pk1", keyValue(pk1)).addPrimaryKeyColumn("pk2", keyValue(pk2))
            .build();
    }

    private static PrimaryKeyValue keyValue(Object value) {
        if (value instanceof PrimaryKeyValue) return (PrimaryKeyValue) value;
        if (value instanceof Integer) return PrimaryKeyValue.fromLong((Integer) value);
        return PrimaryKeyValue.fromString((String) value);
    }

    private static PrimaryKey end(IndexMeta index, PrimaryKeyValue infinite) {
        return entryKey(index, infinite, infinite, infinite);
    }

    /** Returns a row as an index by n has it. */
    private static List<Object> entry(IndexMeta index, String pk1, int n, int pk2, Object... s) {
        return Arrays.asList(entryKey(index, pk1, n, pk2),
            s.length == 0 ? Map.of() : Map.of("s", s[0]));
    }

    static RangeRowQueryCriteria whole(IndexMeta index, Direction direction, int limit) {
        boolean backward = direction == Direction.BACKWARD;
        RangeRowQueryCriteria query = new RangeRowQueryCriteria(index.getIndexName());
        query.setMaxVersions(1);
        query.setDirection(direction);
        query.setLimit(limit);
        PrimaryKey low = end(index, PrimaryKeyValue.INF_MIN);
        PrimaryKey high = end(index, PrimaryKeyValue.INF_MAX);
        query.setInclusiveStartPrimaryKey(backward ? high : low);
        query.setExclusiveEndPrimaryKey(backward ? low : high);
        return query;
    }

    /** Reads an index by n page by page. */
    static List<List<Object>> range(IndexMeta index, Direction direction, int limit) {
        RangeRowQueryCriteria query = whole(index, direction, limit);
        List<List<Object>> found = new ArrayList<>();
        PrimaryKey next = query.getInclusiveStartPrimaryKey();
        while (next != null) {
            query.setInclusiveStartPrimaryKey(next);
            GetRangeResponse told = CLIENT.getRange(new GetRangeRequest(query));
            for (Row row : told.getRows()) {
                found.add(Arrays.asList(row.getPrimaryKey(), values(row)));
            }
            next = told.getNextStartPrimaryKey();
        }
        return found;
    }

    /** Reads until it is what is wanted, or fails with the last that it was. */
    private static void caughtUp(Reader reader, Object wanted) throws Exception {
        long until = System.nanoTime() + CAUGHT_UP_MS_MAX * 1_000_000;
        while (!wanted.equals(reader.read()) && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        same(reader.read(), wanted);
    }

    @SafeVarargs
    private static void holds(IndexMeta index, List<Object>... wanted) throws Exception {
        List<List<Object>> all = new ArrayList<>(Arrays.asList(wanted));
        if (index.getIndexType() == GLOBAL) {
            caughtUp(() -> range(index, Direction.FORWARD, 5000), all);
        }
        same(range(index, Direction.FORWARD, 2), all);
        Collections.reverse(all);
        same(range(index, Direction.BACKWARD, 2), all);
    }

    private static void described() {
        IndexMeta local = index(meta().getTableName(), LOCAL, Arrays.asList("pk1", "n"), "s", "d");
        IndexMeta other = index(meta().getTableName(), GLOBAL, Arrays.asList("s", "n"));
        String table = indexed(local, other);
        IndexMeta later = index(meta().getTableName(), GLOBAL, Arrays.asList("b"), "n");
        add(table, later, false);
        List<List<Object>> found = new ArrayList<>();
        for (IndexMeta told : shown(table)) {
            same(told.getIndexSyncPhase(), SyncStat.SyncPhase.INCR);
            found.add(Arrays.asList(told.getIndexName(), told.getPrimaryKeyList(),
                told.getDefinedColumnsList(), told.getIndexType(), told.getIndexUpdateMode()));
        }
        same(found, Arrays.asList(
            Arrays.asList(local.getIndexName(), Arrays.asList("pk1", "n"),
                Arrays.asList("s", "d"), LOCAL, IndexUpdateMode.IUM_SYNC_INDEX),
            Arrays.asList(other.getIndexName(), Arrays.asList("s", "n"),
                Arrays.asList(), GLOBAL, IndexUpdateMode.IUM_ASYNC_INDEX),
            Arrays.asList(later.getIndexName(), Arrays.asList("b"),
                Arrays.asList("n"), GLOBAL, IndexUpdateMode.IUM_ASYNC_INDEX)));
        DescribeTableResponse alone =
            CLIENT.describeTable(new DescribeTableRequest(local.getIndexName()));
        TableMeta columns = new TableMeta("of the index");
        columns.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        columns.addPrimaryKeyColumn("n", PrimaryKeyType.INTEGER);
        columns.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        same(alone.getTableMeta().getPrimaryKeyList(), columns.getPrimaryKeyList());
        same(alone.getTableOptions().getMaxVersions(), 1);
        List<String> listed = CLIENT.listTable().getTableNames();
        that("the table is listed", listed.contains(table));
        that("its indexes are not", !listed.contains(local.getIndexName()));
        drop(table);
    }

    /** An index's rows change and go with the table's. */
    private static void rows() throws Exception {
        for (IndexType kind : KINDS) {
            IndexMeta index = byN(kind);
            String table = indexed(index);
            put(table, key("a", 1), column("n", 20), column("s", "x"), column("other", 1));
            put(table, key("a", 2), column("n", 10));
            put(table, key("a", 3), column("s", "without n"));
            holds(index, entry(index, "a", 10, 2), entry(index, "a", 20, 1, "x"));
            send(new RowUpdateChange(table, key("a", 1)).put(column("s", "y")));
            send(new RowUpdateChange(table, key("a", 2)).increment(column("n", 15)));
            send(new RowUpdateChange(table, key("a", 3)).put(column("n", 30)));
            holds(index, entry(index, "a", 20, 1, "y"), entry(index, "a", 25, 2),
                entry(index, "a", 30, 3, "without n"));
            send(new RowUpdateChange(table, key("a", 3)).deleteColumns("n"));
            delete(table, key("a", 1));
            put(table, key("a", 4), column("n", -5));
            holds(index, entry(index, "a", -5, 4), entry(index, "a", 25, 2));
            drop(table);
        }
    }

    private static void byKey() throws Exception {
        for (IndexType kind : KINDS) {
            IndexMeta index = byN(kind);
            index.addDefinedColumn("d");
            String table = indexed(index);
            put(table, key("a", 1), column("n", 7), column("s", "Grüße 你好"), column("d", 0.5));
            String name = index.getIndexName();
            PrimaryKey found = entryKey(index, "a", 7, 1);
            Map<String, Object> cells = Map.of("s", "Grüße 你好", "d", 0.5);
            if (kind == GLOBAL) {
                caughtUp(() -> read(name, found) != null, true);
            }
            same(read(name, found), cells);
            same(read(name, entryKey(index, "a", 7, 2)), null);
            SingleRowQueryCriteria some = criteria(name, found);
            some.addColumnsToGet("d");
            same(values(get(some).getRow()), Map.of("d", 0.5));
            BatchGetRowRequest batch = new BatchGetRowRequest();
            MultiRowQueryCriteria wanted = new MultiRowQueryCriteria(name);
            wanted.setMaxVersions(1);
            wanted.addRow(found);
            wanted.addRow(entryKey(index, "b", 7, 1));
            batch.addMultiRowQueryCriteria(wanted);
            List<BatchGetRowResponse.RowResult> told =
                CLIENT.batchGetRow(batch).getBatchGetRowResult(name);
            same(values(told.get(0).getRow()), cells);
            same(told.get(1).getRow(), null);
            drop(table);
        }
    }

    /** Rows of a batch that are refused leave no trace in an index. */
    private static void batches() throws Exception {
        IndexMeta index = byN(LOCAL);
        String table = indexed(index);
        put(table, key("a", 3), column("n", 3));
        RowPutChange strict = putting(table, key("a", 9), column("n", 9));
        strict.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        BatchWriteRowResponse told = BatchWrites.send(false,
            putting(table, key("a", 1), column("n", 2)), strict,
            new RowUpdateChange(table, key("a", 2)).put(column("n", 1)).put(column("s", "x")),
            new RowDeleteChange(table, key("a", 3)),
            putting(table, key("b", 1), column("n", 0)),
            putting(table, key("b", 2), column("n", "no number")));
        List<Boolean> succeeded = new ArrayList<>();
        told.getRowStatus(table).forEach(row -> succeeded.add(row.isSucceed()));
        same(succeeded, Arrays.asList(true, false, true, true, true, false));
        same(told.getRowStatus(table).get(5).getError().getMessage(),
            "Invalid column type for column n expect VT_INTEGER actual VT_STRING");
        holds(index, entry(index, "a", 1, 2, "x"), entry(index, "a", 2, 1), entry(index, "b", 0, 1));
        drop(table);
    }

    private static void atomic() throws Exception {
        IndexMeta index = byN(LOCAL);
        String table = indexed(index);
        put(table, key("p", 3), column("n", 3));
        RowPutChange strict = putting(table, key("p", 9), column("n", 9));
        strict.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        BatchWrites.send(true, putting(table, key("p", 1), column("n", 1)), strict);
        holds(index, entry(index, "p", 3, 3));
        that("written", BatchWrites.send(true, putting(table, key("p", 1), column("n", 5)),
            new RowDeleteChange(table, key("p", 3)),
            putting(table, key("p", 2), column("n", 4))).isAllSucceed());
        holds(index, entry(index, "p", 4, 2), entry(index, "p", 5, 1));
        drop(table);
    }

    /** BulkImport reaches an index, BulkExport reads it. */
    private static void bulk() throws Exception {
        for (IndexType kind : KINDS) {
            IndexMeta index = byN(kind);
            String table = indexed(index);
            that("written", Bulk.send(table, putting(table, key("a", 1), column("n", 2)),
                putting(table, key("a", 2), column("n", 1), column("s", "x")),
                putting(table, key("a", 3), column("s", "without n"))).isAllSucceed());
            holds(index, entry(index, "a", 1, 2, "x"), entry(index, "a", 2, 1));
            List<Object> numbers = new ArrayList<>();
            for (Row row : Bulk.exported(whole(index, Direction.FORWARD, 5000), "n", "pk2", "s")) {
                numbers.add(row.getPrimaryKey().getPrimaryKeyColumn("n").getValue().asLong());
                numbers.add(row.getPrimaryKey().getPrimaryKeyColumn("pk2").getValue().asLong());
                numbers.add(values(row).get("s"));
            }
            same(numbers, Arrays.asList(1L, 2L, "x", 2L, 1L, null));
            drop(table);
        }
    }

    /** An index learns of a transaction's writes with its commit, never of an abort's. */
    private static void transactions() throws Exception {
        IndexMeta local = byN(LOCAL);
        IndexMeta other = byN(GLOBAL);
        String table = indexed(local, other);
        put(table, key("p", 1), column("n", 1));
        String id = Transactions.start(table, Transactions.partition("p"));
        PutRowRequest request = new PutRowRequest(
            putting(table, key("p", 2), column("n", 5), column("s", "new")));
        request.setTransactionId(id);
        CLIENT.putRow(request);
        Transactions.deleteWithin(id, table, key("p", 1));
        holds(local, entry(local, "p", 1, 1));
        holds(other, entry(other, "p", 1, 1));
        Transactions.commit(id);
        holds(local, entry(local, "p", 5, 2, "new"));
        holds(other, entry(other, "p", 5, 2, "new"));
        String aborted = Transactions.start(table, Transactions.partition("p"));
        Transactions.deleteWithin(aborted, table, key("p", 2));
        Transactions.abort(aborted);
        holds(local, entry(local, "p", 5, 2, "new"));
        holds(other, entry(other, "p", 5, 2, "new"));
        drop(table);
    }

    private static void transactionReads() throws Exception {
        IndexMeta index = byN(LOCAL);
        String table = indexed(index);
        String id = Transactions.start(table, Transactions.partition("p"));
        String text = "Disallow read local index";
        invalid(text, () -> Transactions.readWithin(
            id, index.getIndexName(), entryKey(index, "p", 1, 1)));
        RangeRowQueryCriteria query = whole(index, Direction.FORWARD, 10);
        query.setInclusiveStartPrimaryKey(
            entryKey(index, "p", PrimaryKeyValue.INF_MIN, PrimaryKeyValue.INF_MIN));
        query.setExclusiveEndPrimaryKey(
            entryKey(index, "p", PrimaryKeyValue.INF_MAX, PrimaryKeyValue.INF_MAX));
        GetRangeRequest request = new GetRangeRequest(query);
        request.setTransactionId(id);
        invalid(text, () -> CLIENT.getRange(request));
        Transactions.abort(id);
        holds(index);
        drop(table);
    }

    /** Once the phase says so, an index has every row that there was before. */
    private static void baseData() throws Exception {
        for (IndexType kind : KINDS) {
            String table = indexed();
            IndexMeta index = byN(kind);
            List<List<Object>> wanted = new ArrayList<>();
            for (int n = 0; n < 600; n += 200) {
                RowChange[] changes = new RowChange[200];
                for (int m = 0; m < changes.length; m++) {
                    changes[m] = putting(table, key("a", n + m), column("n", 600 - n - m));
                    wanted.add(0, entry(index, "a", 600 - n - m, n + m));
                }
                that("written", BatchWrites.send(false, changes).isAllSucceed());
            }
            add(table, index, true);
            put(table, key("b", 1), column("n", 2000));
            caughtUp(() -> phase(table, index), SyncStat.SyncPhase.INCR);
            wanted.add(entry(index, "b", 2000, 1));
            caughtUp(() -> read(index.getIndexName(), entryKey(index, "b", 2000, 1)) != null, true);
            same(range(index, Direction.FORWARD, 250), wanted);
            Collections.reverse(wanted);
            same(range(index, Direction.BACKWARD, 5000), wanted);
            drop(table);
        }
    }

    /** Returns an index's phase; while it is FULL a local one cannot be read. */
    private static SyncStat.SyncPhase phase(String table, IndexMeta index) {
        SyncStat.SyncPhase phase = shown(table).get(0).getIndexSyncPhase();
        if (phase == SyncStat.SyncPhase.FULL && index.getIndexType() == LOCAL) {
            try {
                range(index, Direction.FORWARD, 1);
                // It was finished between both.
                same(shown(table).get(0).getIndexSyncPhase(), SyncStat.SyncPhase.INCR);
            } catch (TableStoreException told) {
                same(told.getMessage(), "Disallow read local index");
            }
        }
        return phase;
    }

    private static void laterWrites() throws Exception {
        for (IndexType kind : KINDS) {
            String table = indexed();
            for (int n = 0; n < 4; n++) {
                put(table, key("a", n), column("n", n));
            }
            IndexMeta index = byN(kind);
            add(table, index, false);
            holds(index);
            put(table, key("a", 1), column("n", 10));
            send(new RowUpdateChange(table, key("a", 2)).put(column("other", "is written")));
            delete(table, key("a", 0));
            holds(index, entry(index, "a", 2, 2), entry(index, "a", 10, 1));
            drop(table);
        }
    }

    private static void dropped() throws Exception {
        for (IndexType kind : KINDS) {
            IndexMeta index = byN(kind);
            String name = index.getIndexName();
            String table = indexed(index);
            put(table, key("a", 1), column("n", 1));
            holds(index, entry(index, "a", 1, 1));
            remove(table, name);
            same(shown(table).size(), 0);
            absent(() -> range(index, Direction.FORWARD, 10));
            absent(() -> read(name, entryKey(index, "a", 1, 1)));
            absent(() -> CLIENT.describeTable(new DescribeTableRequest(name)));
            absent(() -> remove(table, name));
            same(read(table, key("a", 1)), Map.of("n", 1L));
            add(table, index, false);
            holds(index);
            put(table, key("a", 1), column("n", 2));
            holds(index, entry(index, "a", 2, 1));
            drop(table);
        }
    }

    private static void droppedTable() throws Exception {
        IndexMeta local = byN(LOCAL);
        IndexMeta other = byN(GLOBAL);
        TableMeta meta = columns();
        String table = create(meta, new TableOptions(-1, 1), local, other);
        put(table, key("a", 1), column("n", 1));
        holds(other, entry(other, "a", 1, 1));
        drop(table);
        absent(() -> range(local, Direction.FORWARD, 10));
        absent(() -> range(other, Direction.FORWARD, 10));
        create(meta, new TableOptions(-1, 1), local, other);
        holds(local);
        holds(other);
        drop(table);
    }
}
