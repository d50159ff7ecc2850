package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.filter.ColumnPaginationFilter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Rows of many columns, and of more bytes than one answer holds. */
final class WideRows {
    private static final int MIB2 = 2097152;

    static void checkAll() {
        check("wide-columns", WideRows::columns);
        check("wide-row-parts", WideRows::parts);
        check("wide-row-iterator", WideRows::iterator);
    }

    /** Reads a row of 3000 columns in slices: by names, in a batch and in a range. */
    private static void columns() {
        String table = table();
        PrimaryKey row = key("wide", 1);
        for (int start = 0; start < 3000; start += 1000) {
            RowUpdateChange change = new RowUpdateChange(table, row);
            for (int n = start; n < start + 1000; n++) {
                change.put(column(String.format("c%04d", n), n));
            }
            send(change);
        }
        same(get(criteria(table, row)).getRow().getColumns().length, 3000);
        int[][] slices = {{0, 1}, {999, 1001}, {2990, 3000}, {0, 3000}};
        for (int[] slice : slices) {
            int count = slice[1] - slice[0];
            SingleRowQueryCriteria query = criteria(table, row);
            between(query, slice);
            Column[] found = get(query).getRow().getColumns();
            same(found.length, count);
            same(found[0].getValue().asLong(), (long) slice[0]);
            MultiRowQueryCriteria several = new MultiRowQueryCriteria(table);
            several.setMaxVersions(1);
            several.addRow(row);
            between(several, slice);
            BatchGetRowRequest batch = new BatchGetRowRequest();
            batch.addMultiRowQueryCriteria(several);
            same(CLIENT.batchGetRow(batch).getBatchGetRowResult(table).get(0).getRow()
                .getColumns().length, count);
            RangeRowQueryCriteria range = partition(table, "wide");
            between(range, slice);
            same(CLIENT.getRange(new GetRangeRequest(range)).getRows().get(0)
                .getColumns().length, count);
        }
        drop(table);
    }

    private static void between(RowQueryCriteria query, int[] slice) {
        query.setStartColumn(String.format("c%04d", slice[0]));
        query.setEndColumn(String.format("c%04d", slice[1]));
    }

    /** Makes a row of six columns of 2 MiB, more than the 8 MiB of one answer. */
    private static String large(PrimaryKey row) {
        String table = table();
        for (int n = 0; n < 6; n++) {
            byte[] value = new byte[MIB2];
            Arrays.fill(value, (byte) n);
            send(new RowUpdateChange(table, row).put(column("c" + n, value)));
        }
        return table;
    }

    /** GetRow, BatchGetRow and GetRange each follow the token by themselves. */
    private static void parts() {
        PrimaryKey row = key("large", 1);
        String table = large(row);
        put(table, key("large", 2), column("small", 1));
        List<String> found = new ArrayList<>();
        GetRowResponse told = get(criteria(table, row));
        taken(told.getRow(), found);
        same(found, Arrays.asList("c0", "c1", "c2", "c3", "c4", "c5"));
        that("units of all parts",
            told.getConsumedCapacity().getCapacityUnit().getReadCapacityUnit() >= 6 * 512);
        same(batched(table, row), found);
        same(ranged(table), Arrays.asList("c0", "c1", "c2", "c3", "c4", "c5", "small"));
        drop(table);
    }

    private static void taken(Row row, List<String> found) {
        if (row == null) {
            return;
        }
        for (Column cell : row.getColumns()) {
            found.add(cell.getName());
            if (cell.getName().startsWith("c")) {
                byte[] value = cell.getValue().asBinary();
                same(value.length, MIB2);
                same("c" + value[MIB2 - 1], cell.getName());
            }
        }
    }

    private static List<String> batched(String table, PrimaryKey row) {
        List<String> found = new ArrayList<>();
        MultiRowQueryCriteria query = new MultiRowQueryCriteria(table);
        query.setMaxVersions(1);
        query.addRow(row);
        BatchGetRowRequest request = new BatchGetRowRequest();
        request.addMultiRowQueryCriteria(query);
        BatchGetRowResponse.RowResult told =
            CLIENT.batchGetRow(request).getBatchGetRowResult(table).get(0);
        same(told.hasNextToken(), false);
        taken(told.getRow(), found);
        return found;
    }

    /** The limit is needed: without one the SDK waits in vain for a row that comes in parts. */
    private static List<String> ranged(String table) {
        List<String> found = new ArrayList<>();
        RangeRowQueryCriteria query = partition(table, "large");
        query.setLimit(100);
        for (PrimaryKey next = query.getInclusiveStartPrimaryKey(); next != null;) {
            query.setInclusiveStartPrimaryKey(next);
            GetRangeResponse told = CLIENT.getRange(new GetRangeRequest(query));
            for (Row row : told.getRows()) {
                taken(row, found);
            }
            next = told.getNextStartPrimaryKey();
        }
        return found;
    }

    /** The SDK's iterator follows the token; a page that is asked for is not exceeded. */
    private static void iterator() {
        PrimaryKey row = key("large", 1);
        String table = large(row);
        same(iterated(criteria(table, row)), Arrays.asList("c0", "c1", "c2", "c3", "c4", "c5"));
        SingleRowQueryCriteria some = criteria(table, row);
        some.setStartColumn("c1");
        some.setEndColumn("c5");
        same(iterated(some), Arrays.asList("c1", "c2", "c3", "c4"));
        SingleRowQueryCriteria page = criteria(table, row);
        page.setStartColumn("c1");
        page.setFilter(new ColumnPaginationFilter(2, 1));
        same(iterated(page), Arrays.asList("c2", "c3"));
        drop(table);
    }

    private static List<String> iterated(SingleRowQueryCriteria query) {
        WideColumnIterator columns = CLIENT.createWideColumnIterator(new GetRowRequest(query));
        same(columns.getPrimaryKey(), query.getPrimaryKey());
        List<String> found = new ArrayList<>();
        while (columns.hasNextColumn()) {
            found.add(columns.nextColumn().getName());
        }
        return found;
    }
}
