package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.model.*;
import com.alicloud.openservices.tablestore.model.condition.CompositeColumnValueCondition;
import com.alicloud.openservices.tablestore.model.condition.SingleColumnValueCondition;
import com.alicloud.openservices.tablestore.model.filter.*;
import com.alicloud.openservices.tablestore.model.filter.CompositeColumnValueFilter.LogicOperator;
import com.alicloud.openservices.tablestore.model.filter.SingleColumnValueFilter.CompareOperator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Filters of reads: what they see, of which versions, and what is no filter. */
final class Filters {
    private static String table;

    static void checkAll() {
        table = table();
        check("filter-columns-read", Filters::columns);
        check("filter-versions", Filters::versions);
        check("filter-key-columns", Filters::keys);
        check("filter-regex", Filters::regex);
        check("filter-batch-get", Filters::batch);
        check("filter-errors", Filters::errors);
        check("pagination-versions", Filters::pages);
        drop(table);
    }

    private static SingleColumnValueFilter single(String name, Object value) {
        return new SingleColumnValueFilter(name, CompareOperator.EQUAL, value(value));
    }

    private static CompositeColumnValueFilter all(LogicOperator operator, ColumnValueFilter... parts) {
        CompositeColumnValueFilter node = new CompositeColumnValueFilter(operator);
        for (ColumnValueFilter part : parts) {
            node.addFilter(part);
        }
        return node;
    }

    private static Map<String, Object> filtered(SingleRowQueryCriteria query, Filter filter) {
        query.setFilter(filter);
        return values(get(query).getRow());
    }

    /** A filter sees only the columns that are read. */
    private static void columns() {
        PrimaryKey row = key("columns", 1);
        put(table, row, column("a", 1), column("b", 2));
        SingleRowQueryCriteria query = criteria(table, row);
        query.addColumnsToGet(new String[] {"a", "b"});
        same(filtered(query, single("a", 1)), Map.of("a", 1L, "b", 2L));
        query = criteria(table, row);
        query.addColumnsToGet("b");
        same(filtered(query, single("a", 1)), Map.of("b", 2L));
        same(filtered(query, single("a", 1).setPassIfMissing(false)), null);
        same(get(query).getConsumedCapacity().getCapacityUnit(), new CapacityUnit(1, 0));
    }

    /** The newest version decides, or any version that is read. */
    private static void versions() {
        PrimaryKey row = key("versions", 1);
        for (int at = 1; at < 4; at++) {
            send(new RowUpdateChange(table, row).put(column("c", at, at)));
        }
        SingleRowQueryCriteria query = criteria(table, row);
        query.setMaxVersions(3);
        same(filtered(query, single("c", 1)), null);
        that("the newest", filtered(query, single("c", 3)) != null);
        that("any", filtered(query, single("c", 1).setLatestVersionsOnly(false)) != null);
        query.setMaxVersions(1);
        same(filtered(query, single("c", 1).setLatestVersionsOnly(false)), null);
    }

    private static void keys() {
        String name = table();
        for (int n = 0; n < 10; n++) {
            put(name, key("a", n), column("n", n));
        }
        RangeRowQueryCriteria query = partition(name, "a");
        query.setFilter(new SingleColumnValueFilter("pk2", CompareOperator.LESS_THAN,
            ColumnValue.fromLong(4)));
        same(CLIENT.getRange(new GetRangeRequest(query)).getRows().size(), 4);
        query.setFilter(single("pk1", "b"));
        same(CLIENT.getRange(new GetRangeRequest(query)).getRows().size(), 0);
        that("in GetRow", filtered(criteria(name, key("a", 5)),
            all(LogicOperator.AND, single("pk2", 5), single("n", 5))) != null);
        drop(name);
    }

    private static void regex() {
        PrimaryKey row = key("regex", 1);
        put(table, row, column("s", "name=x1;length=42;ratio=0.5"), column("n", 42));
        RegexRule number = new RegexRule("length=([0-9]+);", RegexRule.CastType.VT_INTEGER);
        RegexRule ratio = new RegexRule("ratio=([0-9.]+)", RegexRule.CastType.VT_DOUBLE);
        RegexRule text = new RegexRule("name=([a-z][0-9]);", RegexRule.CastType.VT_STRING);
        RegexRule none = new RegexRule("nothing=([0-9]+)", RegexRule.CastType.VT_INTEGER);
        RegexRule uncast = new RegexRule("name=([a-z]+)", RegexRule.CastType.VT_INTEGER);
        regex(row, number, SingleColumnValueRegexFilter.CompareOperator.EQUAL, 42, true);
        regex(row, number, SingleColumnValueRegexFilter.CompareOperator.LESS_THAN, 42, false);
        regex(row, ratio, SingleColumnValueRegexFilter.CompareOperator.LESS_EQUAL, 0.5, true);
        regex(row, text, SingleColumnValueRegexFilter.CompareOperator.EQUAL, "x1", true);
        regex(row, text, SingleColumnValueRegexFilter.CompareOperator.NOT_EQUAL, "x1", false);
        regex(row, none, SingleColumnValueRegexFilter.CompareOperator.EQUAL, 1, false);
        regex(row, uncast, SingleColumnValueRegexFilter.CompareOperator.EQUAL, 1, false);
        SingleRowQueryCriteria query = criteria(table, row);
        for (boolean there : new boolean[] {true, false}) {
            RegexRule rule = there ? number : none;
            same(filtered(query, new SingleColumnValueRegexFilter("s", rule,
                SingleColumnValueRegexFilter.CompareOperator.EXIST)) != null, there);
            same(filtered(query, new SingleColumnValueRegexFilter("s", rule,
                SingleColumnValueRegexFilter.CompareOperator.NOT_EXIST)) != null, !there);
        }
    }

    private static void regex(PrimaryKey row, RegexRule rule,
            SingleColumnValueRegexFilter.CompareOperator operator, Object value, boolean passes) {
        SingleRowQueryCriteria query = criteria(table, row);
        Map<String, Object> found =
            filtered(query, new SingleColumnValueRegexFilter("s", rule, operator, value(value)));
        same(found != null, passes);
    }

    private static void batch() {
        MultiRowQueryCriteria query = new MultiRowQueryCriteria(table);
        query.setMaxVersions(1);
        query.setFilter(single("even", true).setPassIfMissing(false));
        for (int n = 0; n < 4; n++) {
            put(table, key("batch", n), column("even", n % 2 == 0));
            query.addRow(key("batch", n));
        }
        BatchGetRowRequest request = new BatchGetRowRequest();
        request.addMultiRowQueryCriteria(query);
        List<BatchGetRowResponse.RowResult> rows =
            CLIENT.batchGetRow(request).getBatchGetRowResult(table);
        for (int n = 0; n < 4; n++) {
            that("no error", rows.get(n).isSucceed());
            same(rows.get(n).getRow() != null, n % 2 == 0);
        }
    }

    private static CompositeColumnValueFilter many(int count) {
        ColumnValueFilter[] parts = new ColumnValueFilter[count - 1];
        Arrays.fill(parts, single("c", 1));
        return all(LogicOperator.AND, parts);
    }

    /** A filter, of a read and as a condition, is held to its limits, the count first. */
    private static void errors() throws Exception {
        CompositeColumnValueFilter deep = all(LogicOperator.NOT, single("c", 1));
        for (int n = 0; n < 1000; n++) {
            deep = all(LogicOperator.NOT, deep);
        }
        String count = "The count of filter exceeds the max: 32.";
        refusedFilter(count, deep);
        refusedFilter(count, many(33));
        refusedFilter(count, all(LogicOperator.NOT, many(40), single("c", 1)));
        refusedFilter("Invalid column name: '#c'.", single("#c", 1));
        refusedFilter("The length of attribute column: 'c' exceeds the MaxLength:2097152 with "
            + "CurrentLength:2097153.", single("c", "x".repeat(2097153)));
        String not = "Invalid NOT operator: the number of sub-filters must be 1.";
        String and =
            "Invalid AND/OR operator: the number of sub-filters must be more than 1.";
        refusedFilter(not, all(LogicOperator.NOT));
        refusedFilter(not, all(LogicOperator.NOT, single("c", 1), single("c", 2)));
        refusedFilter(and, all(LogicOperator.AND));
        refusedFilter(and, all(LogicOperator.OR, single("c", 1)));
        refusedFilter(and, all(LogicOperator.AND, single("c", 1),
            all(LogicOperator.OR, single("c", 1))));
        same(filtered(criteria(table, key("errors", 1)), many(32)), null);
    }

    private static void refusedFilter(String text, ColumnValueFilter filter) throws Exception {
        SingleRowQueryCriteria query = criteria(table, key("errors", 1));
        query.setFilter(filter);
        invalid(text, () -> get(query));
        RangeRowQueryCriteria range = partition(table, "errors");
        range.setFilter(filter);
        invalid(text, () -> CLIENT.getRange(new GetRangeRequest(range)));
        RowUpdateChange change =
            new RowUpdateChange(table, key("errors", 1)).put(column("c", 1));
        Condition condition = new Condition(RowExistenceExpectation.IGNORE);
        condition.setColumnCondition(filter instanceof SingleColumnValueFilter
            ? ((SingleColumnValueFilter) filter).toCondition()
            : ((CompositeColumnValueFilter) filter).toCondition());
        change.setCondition(condition);
        invalid(text, () -> send(change));
    }

    /** A page counts columns, not versions, and after start and end were applied. */
    private static void pages() {
        PrimaryKey row = key("pages", 1);
        for (int at = 1; at < 3; at++) {
            RowUpdateChange change = new RowUpdateChange(table, row);
            for (int n = 0; n < 6; n++) {
                change.put(column("c" + n, at, at));
            }
            send(change);
        }
        SingleRowQueryCriteria query = criteria(table, row);
        query.setMaxVersions(2);
        query.setFilter(new ColumnPaginationFilter(2, 1));
        same(names(query), Arrays.asList("c1", "c1", "c2", "c2"));
        query.setStartColumn("c2");
        query.setEndColumn("c5");
        same(names(query), Arrays.asList("c3", "c3", "c4", "c4"));
        query.setFilter(new ColumnPaginationFilter(2, 9));
        same(names(query), new ArrayList<>());
    }

    private static List<String> names(SingleRowQueryCriteria query) {
        List<String> found = new ArrayList<>();
        for (Column cell : get(query).getRow().getColumns()) {
            found.add(cell.getName());
        }
        return found;
    }
}
