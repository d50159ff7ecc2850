package rowtide;

import com.alicloud.openservices.tablestore.ClientConfiguration;
import com.alicloud.openservices.tablestore.SyncClient;
import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.model.*;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Drives a server with the official Java SDK and prints a line per check: "ok NAME" or
 * "FAILED NAME: why". The server is named by ROWTIDE_ENDPOINT, ROWTIDE_INSTANCE, ROWTIDE_KEY_ID and
 * ROWTIDE_KEY_SECRET.
 */
public final class Conformance {
    static final String ENDPOINT = System.getenv("ROWTIDE_ENDPOINT");
    static final String INSTANCE = System.getenv("ROWTIDE_INSTANCE");
    static final String KEY_ID = System.getenv("ROWTIDE_KEY_ID");
    static final String SECRET = System.getenv("ROWTIDE_KEY_SECRET");
    static final SyncClient CLIENT = new SyncClient(ENDPOINT, KEY_ID, SECRET, INSTANCE);
    /** Repeats nothing: the SDK repeats a conflict for ten seconds. */
    static final SyncClient HASTY = hasty();
    private static boolean failed;
    private static int made;

    interface Scenario {
        void run() throws Exception;
    }

    public static void main(String[] none) {
        Tables.checkAll();
        Schemas.checkAll();
        Rows.checkAll();
        Conditions.checkAll();
        Filters.checkAll();
        Reads.checkAll();
        WideRows.checkAll();
        BatchWrites.checkAll();
        Bulk.checkAll();
        Writers.checkAll();
        Refusals.checkAll();
        Transactions.checkAll();
        Indexes.checkAll();
        IndexRefusals.checkAll();
        Streams.checkAll();
        Records.checkAll();
        CLIENT.shutdown();
        HASTY.shutdown();
        System.exit(failed ? 1 : 0);
    }

    private static SyncClient hasty() {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setRetryStrategy(new NoRetryStrategy());
        return new SyncClient(ENDPOINT, KEY_ID, SECRET, INSTANCE, configuration);
    }

    /** Runs one scenario. Whatever it fails with is its line. */
    static void check(String name, Scenario scenario) {
        try {
            scenario.run();
            System.out.println("ok " + name);
        } catch (Exception | AssertionError error) {
            failed = true;
            String why = error.toString().replace('\n', ' ');
            System.out.println("FAILED " + name + ": " + why + " at " + place(error));
        }
    }

    private static String place(Throwable error) {
        for (StackTraceElement frame : error.getStackTrace()) {
            if (frame.getClassName().startsWith("rowtide.") && !frame.getMethodName().equals("same")
                    && !frame.getMethodName().equals("that")) {
                return frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return "?";
    }

    static void same(Object got, Object want) {
        if (!Objects.deepEquals(got, want)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** Holds a refusal to its status, code and text; a null text is not looked at. */
    static void refused(int status, String code, String text, Scenario call) throws Exception {
        try {
            call.run();
        } catch (TableStoreException told) {
            same(told.getErrorCode(), code);
            same(told.getHttpStatus(), status);
            same(told.getRequestId().length(), 36);
            if (text != null) {
                same(told.getMessage(), text);
            }
            return;
        }
        throw new AssertionError("not refused with " + code);
    }

    static void invalid(String text, Scenario call) throws Exception {
        refused(400, "OTSParameterInvalid", text, call);
    }

    static void absent(Scenario call) throws Exception {
        refused(404, "OTSObjectNotExist", "Requested table does not exist.", call);
    }

    static void failed(Scenario call) throws Exception {
        refused(403, "OTSConditionCheckFail", "Condition check failed.", call);
    }

    static String table() {
        return table((StreamSpecification) null);
    }

    /** Makes a table keyed pk1 STRING, pk2 INTEGER that keeps five versions of any age. */
    static String table(StreamSpecification stream) {
        TableMeta meta = new TableMeta("java_" + ++made);
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("pk2", PrimaryKeyType.INTEGER);
        return table(meta, stream);
    }

    static String table(TableMeta meta, StreamSpecification stream) {
        CreateTableRequest request =
            new CreateTableRequest(meta, new TableOptions(-1, 5, 1L << 33));
        if (stream != null) {
            request.setStreamSpecification(stream);
        }
        CLIENT.createTable(request);
        return meta.getTableName();
    }

    static TableMeta meta() {
        return new TableMeta("java_" + ++made);
    }

    static void drop(String table) {
        CLIENT.deleteTable(new DeleteTableRequest(table));
    }

    static PrimaryKey key(String pk1, long pk2) {
        return key(PrimaryKeyValue.fromString(pk1), PrimaryKeyValue.fromLong(pk2));
    }

    static PrimaryKey key(PrimaryKeyValue pk1, PrimaryKeyValue pk2) {
        return PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("pk1", pk1).addPrimaryKeyColumn("pk2", pk2).build();
    }

    static ColumnValue value(Object value) {
        if (value instanceof Integer) return ColumnValue.fromLong((Integer) value);
        if (value instanceof Long) return ColumnValue.fromLong((Long) value);
        if (value instanceof Double) return ColumnValue.fromDouble((Double) value);
        if (value instanceof Boolean) return ColumnValue.fromBoolean((Boolean) value);
        if (value instanceof byte[]) return ColumnValue.fromBinary((byte[]) value);
        return ColumnValue.fromString((String) value);
    }

    static Column column(String name, Object value) {
        return new Column(name, value(value));
    }

    static Column column(String name, Object value, long version) {
        return new Column(name, value(value), version);
    }

    static RowPutChange putting(String table, PrimaryKey key, Column... columns) {
        RowPutChange change = new RowPutChange(table, key);
        change.addColumns(Arrays.asList(columns));
        return change;
    }

    static PutRowResponse put(String table, PrimaryKey key, Column... columns) {
        return CLIENT.putRow(new PutRowRequest(putting(table, key, columns)));
    }

    static void delete(String table, PrimaryKey key) {
        CLIENT.deleteRow(new DeleteRowRequest(new RowDeleteChange(table, key)));
    }

    /** Returns the bounds of all rows of a partition key. */
    static RangeRowQueryCriteria partition(String table, String pk1) {
        RangeRowQueryCriteria query = new RangeRowQueryCriteria(table);
        query.setMaxVersions(1);
        query.setInclusiveStartPrimaryKey(
            key(PrimaryKeyValue.fromString(pk1), PrimaryKeyValue.INF_MIN));
        query.setExclusiveEndPrimaryKey(
            key(PrimaryKeyValue.fromString(pk1), PrimaryKeyValue.INF_MAX));
        return query;
    }

    static UpdateRowResponse send(RowUpdateChange change) {
        return CLIENT.updateRow(new UpdateRowRequest(change));
    }

    static SingleRowQueryCriteria criteria(String table, PrimaryKey key) {
        SingleRowQueryCriteria query = new SingleRowQueryCriteria(table, key);
        query.setMaxVersions(1);
        return query;
    }

    static GetRowResponse get(SingleRowQueryCriteria query) {
        return CLIENT.getRow(new GetRowRequest(query));
    }

    /** Returns a row's newest values, null where it is absent. */
    static Map<String, Object> read(String table, PrimaryKey key) {
        return values(get(criteria(table, key)).getRow());
    }

    static Map<String, Object> values(Row row) {
        if (row == null) {
            return null;
        }
        Map<String, Object> found = new LinkedHashMap<>();
        for (Column cell : row.getColumns()) {
            found.putIfAbsent(cell.getName(), cell.getValue().getValue());
        }
        return found;
    }
}
