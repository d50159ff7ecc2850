package main

import (
	"fmt"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkFilters() {
	name := table(nil)
	defer drop(name)
	check("filter-columns-read", func() { checkFilterColumns(name) })
	check("filter-versions", func() { checkFilterVersions(name) })
	check("filter-key-columns", checkFilterKeys)
	check("filter-regex", func() { checkRegex(name) })
	check("filter-batch-get", func() { checkFilterBatch(name) })
	check("filter-errors", func() { checkFilterErrors(name) })
	check("pagination-versions", func() { checkPages(name) })
}

func filtered(query *ts.SingleRowQueryCriteria, filter ts.ColumnFilter) map[string]any {
	query.SetFilter(filter)
	return values(get(query))
}

// checkFilterColumns: a filter sees only the columns that are read.
func checkFilterColumns(name string) {
	row := key("columns", int64(1))
	put(name, row, column("a", int64(1)), column("b", int64(2)))
	five := single("a", ts.CT_EQUAL, int64(1))
	query := criteria(name, row)
	query.ColumnsToGet = []string{"a", "b"}
	same("read", filtered(query, five), map[string]any{"a": int64(1), "b": int64(2)})
	query.ColumnsToGet = []string{"b"}
	same("missing passes", filtered(query, five), map[string]any{"b": int64(2)})
	same("missing fails", filtered(query, strictly(five)), map[string]any(nil))
	told := get(query)
	same("units", *told.ConsumedCapacityUnit, ts.ConsumedCapacityUnit{Read: 1, Write: 0})
}

// checkFilterVersions: the newest version decides, or any version that is read.
func checkFilterVersions(name string) {
	row := key("versions", int64(1))
	for at := int64(1); at < 4; at++ {
		change := update(name, row)
		change.PutColumnWithTimestamp("c", at, at)
		_, err := send(change)
		must(err)
	}
	old := single("c", ts.CT_EQUAL, int64(1))
	query := criteria(name, row)
	query.MaxVersion = 3
	that("any version", filtered(query, old) != nil)
	old.LatestVersionOnly = true
	that("the newest", filtered(query, old) == nil)
	newest := single("c", ts.CT_EQUAL, int64(3))
	newest.LatestVersionOnly = true
	that("the newest is it", filtered(query, newest) != nil)
	query.MaxVersion = 1
	old.LatestVersionOnly = false
	that("none but the newest is read", filtered(query, old) == nil)
}

func checkFilterKeys() {
	name := table(nil)
	defer drop(name)
	for n := int64(0); n < 10; n++ {
		put(name, key("a", n), column("n", n))
	}
	low, high := bounds("a")
	for filter, wanted := range map[*ts.SingleColumnCondition]int{
		single("pk2", ts.CT_LESS_THAN, int64(4)): 4, single("pk1", ts.CT_EQUAL, "b"): 0,
		single("pk1", ts.CT_EQUAL, "a"): 10,
	} {
		query := &ts.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: low, EndPrimaryKey: high,
			MaxVersion: 1, Filter: filter}
		told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
		must(err)
		same(fmt.Sprint(*filter.ColumnName), len(told.Rows), wanted)
	}
	that("in GetRow", filtered(criteria(name, key("a", int64(5))),
		combined(ts.LO_AND, single("pk2", ts.CT_EQUAL, int64(5)), single("n", ts.CT_EQUAL, int64(5)))) != nil)
}

func checkRegex(name string) {
	row := key("regex", int64(1))
	put(name, row, column("s", "name=x1;length=42;ratio=0.5"), column("n", int64(42)))
	regex := func(pattern string, cast ts.VariantType, comparator ts.ComparatorType, value any) ts.ColumnFilter {
		rule := ts.NewValueTransferRule(pattern, cast)
		return strictly(ts.NewSingleColumnValueRegexFilter("s", comparator, rule, value))
	}
	cases := []struct {
		filter ts.ColumnFilter
		passes bool
	}{
		{regex("length=([0-9]+);", ts.Variant_INTEGER, ts.CT_EQUAL, int64(42)), true},
		{regex("length=([0-9]+);", ts.Variant_INTEGER, ts.CT_LESS_THAN, int64(42)), false},
		{regex("ratio=([0-9.]+)", ts.Variant_DOUBLE, ts.CT_LESS_EQUAL, 0.5), true},
		{regex("name=([a-z][0-9]);", ts.Variant_STRING, ts.CT_EQUAL, "x1"), true},
		{regex("name=([a-z][0-9]);", ts.Variant_STRING, ts.CT_EQUAL, "x2"), false},
		{regex("nothing=([0-9]+)", ts.Variant_INTEGER, ts.CT_EQUAL, int64(1)), false},
		{regex("name=([a-z]+)", ts.Variant_INTEGER, ts.CT_EQUAL, int64(1)), false},
	}
	for n, one := range cases {
		same(fmt.Sprint("filter ", n), filtered(criteria(name, row), one.filter) != nil, one.passes)
		same(fmt.Sprint("condition ", n), meets(name, row, one.filter), one.passes)
	}
}

func checkFilterBatch(name string) {
	query := &ts.MultiRowQueryCriteria{TableName: name, MaxVersion: 1,
		Filter: strictly(single("even", ts.CT_EQUAL, true))}
	for n := int64(0); n < 4; n++ {
		put(name, key("batch", n), column("even", n%2 == 0))
		query.AddRow(key("batch", n))
	}
	told, err := client.BatchGetRow(&ts.BatchGetRowRequest{
		MultiRowQueryCriteria: []*ts.MultiRowQueryCriteria{query}})
	must(err)
	for n, row := range told.TableToRowsResult[name] {
		that("no error", row.IsSucceed)
		same("passes", len(row.PrimaryKey.PrimaryKeys) > 0, n%2 == 0)
	}
}

// checkFilterErrors: a filter, of a read and as a condition, is held to its limits, the count first.
func checkFilterErrors(name string) {
	row, one := key("errors", int64(1)), single("c", ts.CT_EQUAL, int64(1))
	many := func(count int) ts.ColumnFilter {
		parts := []ts.ColumnFilter{}
		for n := 1; n < count; n++ {
			parts = append(parts, one)
		}
		return combined(ts.LO_AND, parts...)
	}
	deep := ts.ColumnFilter(one)
	for n := 0; n < 1000; n++ {
		deep = combined(ts.LO_NOT, deep)
	}
	count := "The count of filter exceeds the max: 32."
	not := "Invalid NOT operator: the number of sub-filters must be 1."
	and := "Invalid AND/OR operator: the number of sub-filters must be more than 1."
	for _, case_ := range []struct {
		filter ts.ColumnFilter
		text   string
	}{
		{many(33), count}, {deep, count}, {combined(ts.LO_NOT, many(40), one), count},
		{combined(ts.LO_NOT), not}, {combined(ts.LO_NOT, one, one), not},
		{combined(ts.LO_AND), and}, {combined(ts.LO_OR, one), and},
		{combined(ts.LO_AND, one, combined(ts.LO_OR, one)), and},
		{single("#c", ts.CT_EQUAL, int64(1)), "Invalid column name: '#c'."},
		{single("c", ts.CT_EQUAL, strings.Repeat("x", mib2+1)), "The length of attribute column: 'c' " +
			"exceeds the MaxLength:2097152 with CurrentLength:2097153."},
	} {
		query := criteria(name, row)
		query.SetFilter(case_.filter)
		_, err := fetch(query)
		invalid(err, case_.text)
		change := update(name, row)
		change.PutColumn("c", int64(1))
		change.SetColumnCondition(case_.filter)
		_, err = send(change)
		invalid(err, case_.text)
	}
	that("32 are allowed", filtered(criteria(name, row), many(32)) == nil)
	change := update(name, row)
	change.PutColumn("c", int64(1))
	change.SetColumnCondition(&ts.PaginationFilter{Offset: 0, Limit: 1})
	_, err := send(change)
	refused(err, 400, "OTSParameterInvalid", "")
}

// checkPages: a page counts columns, not versions, and after start and end were applied.
func checkPages(name string) {
	row := key("pages", int64(1))
	for at := int64(1); at < 3; at++ {
		change := update(name, row)
		for n := 0; n < 6; n++ {
			change.PutColumnWithTimestamp(fmt.Sprint("c", n), at, at)
		}
		_, err := send(change)
		must(err)
	}
	query := criteria(name, row)
	query.MaxVersion = 2
	query.SetFilter(&ts.PaginationFilter{Offset: 1, Limit: 2})
	same("columns", names(get(query)), []string{"c1", "c1", "c2", "c2"})
	query.SetStartColumn("c2")
	query.SetEndtColumn("c5")
	same("from the start column", names(get(query)), []string{"c3", "c3", "c4", "c4"})
	query.SetFilter(&ts.PaginationFilter{Offset: 9, Limit: 2})
	same("behind the last", names(get(query)), []string{})
}
