package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.filter.*;
import com.alicloud.openservices.tablestore.model.filter.CompositeColumnValueFilter.LogicOperator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** What a read chooses, row by row, in batches and in ranges. */
final class Reads {
    private static String table;

    static void checkAll() {
        table = table((StreamSpecification) null);
        check("filters", Reads::filters);
        check("pagination-filter", Reads::pagination);
        check("versions", Reads::versions);
        check("column-choice", Reads::columns);
        check("batch-write-and-get", Reads::batches);
        check("batch-row-errors", Reads::batchErrors);
        check("range-pages", Reads::pages);
        check("range-filter", Reads::rangeFilter);
        check("capacity-units", Reads::units);
        drop(table);
    }

    private static CompositeColumnValueFilter all(LogicOperator operator, ColumnValueFilter... parts) {
        CompositeColumnValueFilter node = new CompositeColumnValueFilter(operator);
        for (ColumnValueFilter part : parts) {
            node.addFilter(part);
        }
        return node;
    }

    private static void filters() {
        PrimaryKey row = key("filter", 1);
        put(table, row, column("n", 5), column("s", "length=42;"));
        SingleColumnValueFilter five = new SingleColumnValueFilter(
            "n", SingleColumnValueFilter.CompareOperator.EQUAL, ColumnValue.fromLong(5));
        SingleColumnValueFilter missing = new SingleColumnValueFilter(
            "x", SingleColumnValueFilter.CompareOperator.EQUAL, ColumnValue.fromLong(5));
        missing.setPassIfMissing(false);
        RegexRule rule = new RegexRule("length=([0-9]+);", RegexRule.CastType.VT_INTEGER);
        passes(row, five, true);
        passes(row, missing, false);
        passes(row, all(LogicOperator.OR, five, missing), true);
        passes(row, all(LogicOperator.AND, five, missing), false);
        passes(row, all(LogicOperator.NOT, missing), true);
        passes(row, all(LogicOperator.AND, five,
            all(LogicOperator.NOT, all(LogicOperator.AND, five, missing))), true);
        passes(row, new SingleColumnValueRegexFilter("s", rule,
            SingleColumnValueRegexFilter.CompareOperator.GREATER_THAN, ColumnValue.fromLong(41)), true);
        passes(row, new SingleColumnValueRegexFilter("s", rule,
            SingleColumnValueRegexFilter.CompareOperator.LESS_THAN, ColumnValue.fromLong(42)), false);
        passes(row, new SingleColumnValueRegexFilter("s", rule,
            SingleColumnValueRegexFilter.CompareOperator.EXIST), true);
    }

    private static void passes(PrimaryKey row, Filter filter, boolean expected) {
        SingleRowQueryCriteria query = criteria(table, row);
        query.setFilter(filter);
        same(get(query).getRow() != null, expected);
    }

    private static void pagination() {
        PrimaryKey row = key("page", 1);
        for (int n = 0; n < 10; n++) {
            send(new RowUpdateChange(table, row).put(column("c" + n, n)));
        }
        SingleRowQueryCriteria query = criteria(table, row);
        query.setFilter(new ColumnPaginationFilter(4, 3));
        same(new ArrayList<>(values(get(query).getRow()).keySet()),
            Arrays.asList("c3", "c4", "c5", "c6"));
    }

    private static void versions() {
        PrimaryKey row = key("versions", 1);
        for (long at = 1; at < 9; at++) {
            send(new RowUpdateChange(table, row).put(column("c", at, at)));
        }
        same(seen(row, 9, null), Arrays.asList(8L, 7L, 6L, 5L, 4L));
        same(seen(row, 2, null), Arrays.asList(8L, 7L));
        same(seen(row, 9, new TimeRange(5, 7)), Arrays.asList(6L, 5L));
        same(seen(row, 9, new TimeRange(6, 7)), Arrays.asList(6L));
    }

    private static List<Long> seen(PrimaryKey row, int most, TimeRange times) {
        SingleRowQueryCriteria query = criteria(table, row);
        query.setMaxVersions(most);
        if (times != null) {
            query.setTimeRange(times);
        }
        List<Long> found = new ArrayList<>();
        for (Column cell : get(query).getRow().getColumns()) {
            found.add(cell.getTimestamp());
        }
        return found;
    }

    private static void columns() {
        PrimaryKey row = key("columns", 1);
        put(table, row, column("a", 1), column("b", 1), column("c", 1), column("公司", 1));
        SingleRowQueryCriteria query = criteria(table, row);
        query.addColumnsToGet(new String[] {"公司", "b"});
        same(values(get(query).getRow()).size(), 2);
        query = criteria(table, row);
        query.addColumnsToGet("x");
        same(get(query).getRow(), null);
        query = criteria(table, row);
        query.setStartColumn("b");
        query.setEndColumn("c");
        same(values(get(query).getRow()).size(), 1);
    }

    private static void batches() {
        String other = table((StreamSpecification) null);
        BatchWriteRowRequest request = new BatchWriteRowRequest();
        for (String target : Arrays.asList(table, other)) {
            put(target, key("batch", 0), column("c", "old"));
            for (int n = 0; n < 99; n++) {
                RowPutChange change = new RowPutChange(target, key("batch", n));
                change.addColumn(column("c", n));
                change.setCondition(new Condition(RowExistenceExpectation.EXPECT_NOT_EXIST));
                request.addRowChange(change);
            }
            request.addRowChange(
                new RowUpdateChange(target, key("batch", 99)).put(column("c", target)));
        }
        BatchWriteRowResponse told = CLIENT.batchWriteRow(request);
        same(told.getFailedRows().size(), 2);
        for (String target : Arrays.asList(table, other)) {
            BatchWriteRowResponse.RowResult failed = told.getRowStatus(target).get(0);
            same(failed.getError().getCode(), "OTSConditionCheckFail");
            same(failed.getError().getMessage(), "Condition check failed.");
            same(told.getRowStatus(target).size(), 100);
            MultiRowQueryCriteria query = new MultiRowQueryCriteria(target);
            query.setMaxVersions(1);
            query.addRow(key("batch", 99)).addRow(key("batch", 0)).addRow(key("batch", 500));
            BatchGetRowRequest wanted = new BatchGetRowRequest();
            wanted.addMultiRowQueryCriteria(query);
            List<BatchGetRowResponse.RowResult> rows =
                CLIENT.batchGetRow(wanted).getBatchGetRowResult(target);
            same(values(rows.get(0).getRow()).get("c"), target);
            same(values(rows.get(1).getRow()).get("c"), "old");
            same(rows.get(2).getRow(), null);
            that("absent is no error", rows.get(2).isSucceed());
        }
        drop(other);
    }

    private static void batchErrors() {
        MultiRowQueryCriteria here = new MultiRowQueryCriteria(table);
        here.setMaxVersions(1);
        here.addRow(key("a", 1));
        here.addRow(key(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.fromString("b")));
        MultiRowQueryCriteria there = new MultiRowQueryCriteria("absent");
        there.setMaxVersions(1);
        there.addRow(key("a", 1));
        BatchGetRowRequest request = new BatchGetRowRequest();
        request.addMultiRowQueryCriteria(here);
        request.addMultiRowQueryCriteria(there);
        BatchGetRowResponse told = CLIENT.batchGetRow(request);
        that("a good row", told.getBatchGetRowResult(table).get(0).isSucceed());
        same(told.getBatchGetRowResult(table).get(1).getError().getCode(), "OTSInvalidPK");
        same(told.getBatchGetRowResult("absent").get(0).getError().getMessage(),
            "Requested table does not exist.");
    }

    private static String filled() {
        String name = table((StreamSpecification) null);
        for (String letter : Arrays.asList("a", "b", "c")) {
            BatchWriteRowRequest request = new BatchWriteRowRequest();
            for (int n = 0; n < 100; n++) {
                RowPutChange change = new RowPutChange(name, key(letter, n));
                change.addColumn(column("n", n)).addColumn(column("even", n % 2 == 0));
                request.addRowChange(change);
            }
            that("written", CLIENT.batchWriteRow(request).isAllSucceed());
        }
        return name;
    }

    private static PrimaryKey low(String pk1) {
        return key(PrimaryKeyValue.fromString(pk1), PrimaryKeyValue.INF_MIN);
    }

    private static PrimaryKey high(String pk1) {
        return key(PrimaryKeyValue.fromString(pk1), PrimaryKeyValue.INF_MAX);
    }

    private static void pages() {
        String name = filled();
        for (int limit : new int[] {-1, 1, 99, 100}) {
            for (Direction direction : Direction.values()) {
                boolean backward = direction == Direction.BACKWARD;
                RangeRowQueryCriteria query = new RangeRowQueryCriteria(name);
                query.setMaxVersions(1);
                query.setDirection(direction);
                if (limit > 0) {
                    query.setLimit(limit);
                }
                query.setExclusiveEndPrimaryKey(backward ? low("b") : high("b"));
                List<Long> found = new ArrayList<>();
                PrimaryKey next = backward ? high("b") : low("b");
                while (next != null) {
                    query.setInclusiveStartPrimaryKey(next);
                    GetRangeResponse told = CLIENT.getRange(new GetRangeRequest(query));
                    for (Row row : told.getRows()) {
                        found.add(row.getPrimaryKey().getPrimaryKeyColumn("pk2").getValue().asLong());
                    }
                    next = told.getNextStartPrimaryKey();
                }
                same(found.size(), 100);
                for (int n = 0; n < 100; n++) {
                    same(found.get(n), (long) (backward ? 99 - n : n));
                }
            }
        }
        RangeIteratorParameter parameter = new RangeIteratorParameter(name);
        parameter.setMaxVersions(1);
        parameter.setBufferSize(7);
        parameter.setInclusiveStartPrimaryKey(
            key(PrimaryKeyValue.INF_MIN, PrimaryKeyValue.INF_MIN));
        parameter.setExclusiveEndPrimaryKey(key(PrimaryKeyValue.INF_MAX, PrimaryKeyValue.INF_MAX));
        int count = 0;
        for (Iterator<Row> rows = CLIENT.createRangeIterator(parameter); rows.hasNext(); count++) {
            Map<String, Object> row = values(rows.next());
            same(row.get("n"), (long) (count % 100));
        }
        same(count, 300);
        drop(name);
    }

    private static void rangeFilter() {
        String name = filled();
        RangeRowQueryCriteria query = new RangeRowQueryCriteria(name);
        query.setMaxVersions(1);
        query.setInclusiveStartPrimaryKey(low("c"));
        query.setExclusiveEndPrimaryKey(high("c"));
        query.setFilter(new SingleColumnValueFilter("even",
            SingleColumnValueFilter.CompareOperator.EQUAL, ColumnValue.fromBoolean(true)));
        GetRangeResponse told = CLIENT.getRange(new GetRangeRequest(query));
        same(told.getRows().size(), 50);
        same(told.getNextStartPrimaryKey(), null);
        drop(name);
    }

    private static void units() {
        PrimaryKey row = key("units", 1);
        same(put(table, row, column("c", new byte[5000])).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(0, 2));
        same(get(criteria(table, row)).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(2, 0));
        RowDeleteChange gone = new RowDeleteChange(table, row);
        gone.setCondition(new Condition(RowExistenceExpectation.EXPECT_EXIST));
        same(CLIENT.deleteRow(new DeleteRowRequest(gone)).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(1, 1));
        same(get(criteria(table, row)).getConsumedCapacity().getCapacityUnit(),
            new CapacityUnit(1, 0));
    }
}
