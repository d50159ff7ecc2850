package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.DefaultTableStoreWriter;
import com.alicloud.openservices.tablestore.TableStoreCallback;
import com.alicloud.openservices.tablestore.TableStoreException;
import com.alicloud.openservices.tablestore.core.auth.DefaultCredentials;
import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.writer.RowWriteResult;
import com.alicloud.openservices.tablestore.writer.WriterConfig;
import com.alicloud.openservices.tablestore.writer.WriterStatistics;
import com.alicloud.openservices.tablestore.writer.enums.BatchRequestType;
import com.alicloud.openservices.tablestore.writer.enums.WriteMode;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;

/** The SDK's buffered writer: it sends batches, and the rows of a refused batch one by one. */
final class Writers {
    private static final int ROWS = 300;

    static void checkAll() {
        check("writer-batches", () -> writes(BatchRequestType.BATCH_WRITE_ROW));
        check("writer-bulk-import", () -> writes(BatchRequestType.BULK_IMPORT));
        check("writer-dirty-rows", Writers::dirtyRows);
    }

    /** Writes rows of which every fiftieth has a column that is no column; each is told so. */
    private static void writes(BatchRequestType type) {
        String table = table();
        WriterConfig config = new WriterConfig();
        config.setBatchRequestType(type);
        config.setEnableSchemaCheck(false);
        config.setMaxBatchRowsCount(100);
        Refused refused = new Refused();
        DefaultTableStoreWriter writer = new DefaultTableStoreWriter(ENDPOINT,
            new DefaultCredentials(KEY_ID, SECRET), INSTANCE, table, config, refused);
        for (int n = 0; n < ROWS; n++) {
            String name = n % 50 == 0 ? "#" + n : "c";
            writer.addRowChange(putting(table, key("a", n), column(name, n)));
        }
        writer.flush();
        WriterStatistics told = writer.getWriterStatistics();
        writer.close();
        same(told.getTotalRowsCount(), (long) ROWS);
        same(told.getTotalFailedRowsCount(), (long) ROWS / 50);
        same(told.getTotalSucceedRowsCount(), (long) ROWS - ROWS / 50);
        same(refused.texts.size(), ROWS / 50);
        for (int n = 0; n < ROWS; n++) {
            boolean wrong = n % 50 == 0;
            same(read(table, key("a", n)), wrong ? null : Map.of("c", (long) n));
            same(refused.texts.get(key("a", n)),
                wrong ? "OTSParameterInvalid Invalid column name: '#" + n + "'." : null);
        }
        drop(table);
    }

    /**
     * Imports 101 rows, of which two hold a value that is too long. BulkImport has no conditions: a
     * delete keeps its own only where its request is refused, and its row is written alone.
     */
    private static void dirtyRows() {
        String table = table();
        WriterConfig config = new WriterConfig();
        config.setBatchRequestType(BatchRequestType.BULK_IMPORT);
        config.setWriteMode(WriteMode.SEQUENTIAL);
        config.setBucketCount(1);
        config.setFlushInterval(1000000);
        config.setMaxAttrColumnSize(3 * 1024 * 1024);
        Refused refused = new Refused();
        DefaultTableStoreWriter writer = new DefaultTableStoreWriter(ENDPOINT,
            new DefaultCredentials(KEY_ID, SECRET), INSTANCE, table, config, refused);
        RowDeleteChange absent = new RowDeleteChange(table, key("a", -1));
        absent.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        String tooLong = "x".repeat(2 * 1024 * 1024 + 1);
        for (int n = 0; n < 100; n++) {
            boolean dirty = n == 25 || n == 75;
            String value = dirty ? tooLong : "fits";
            writer.addRowChange(n < 50 ? putting(table, key("a", n), column("c", value))
                : new RowUpdateChange(table, key("a", n)).put(column("c", value)));
            if (n == 25) {
                // Behind a row that has its request refused: the writer's timer flushes as soon as
                // it starts, and a delete before it may be sent in a request of its own.
                writer.addRowChange(absent);
            }
        }
        writer.flush();
        WriterStatistics told = allCounted(writer, 101);
        writer.close();
        same(told.getTotalRowsCount(), 101L);
        same(told.getTotalFailedRowsCount(), 3L);
        same(told.getTotalSucceedRowsCount(), 98L);
        same(refused.texts.get(key("a", -1)), "OTSConditionCheckFail Condition check failed.");
        drop(table);
    }

    /** The rows of a refused import are written one by one; flush may return before the last is counted. */
    private static WriterStatistics allCounted(DefaultTableStoreWriter writer, long rows) {
        long untilMs = System.currentTimeMillis() + 30_000;
        WriterStatistics found = writer.getWriterStatistics();
        while (found.getTotalFailedRowsCount() + found.getTotalSucceedRowsCount() < rows
                && System.currentTimeMillis() < untilMs) {
            LockSupport.parkNanos(10_000_000);
            found = writer.getWriterStatistics();
        }
        return found;
    }

    /** Keeps why rows were refused, by their keys. */
    private static final class Refused implements TableStoreCallback<RowChange, RowWriteResult> {
        final Map<PrimaryKey, String> texts = new ConcurrentHashMap<>();

        @Override
        public void onCompleted(RowChange change, RowWriteResult result) {}

        @Override
        public void onFailed(RowChange change, Exception error) {
            String code = error instanceof TableStoreException
                ? ((TableStoreException) error).getErrorCode() : error.getClass().getName();
            texts.put(change.getPrimaryKey(), code + " " + error.getMessage());
        }
    }
}
