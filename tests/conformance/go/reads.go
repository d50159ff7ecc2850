package main

import (
	"fmt"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkReads() {
	name := table(nil)
	defer drop(name)
	check("filters", func() {
		row := key("filter", int64(1))
		put(name, row, column("n", int64(5)), column("s", "length=42;"))
		five := ts.NewSingleColumnCondition("n", ts.CT_EQUAL, int64(5))
		missing := ts.NewSingleColumnCondition("x", ts.CT_EQUAL, int64(5))
		missing.FilterIfMissing = true
		all := func(lo ts.LogicalOperator, parts ...ts.ColumnFilter) ts.ColumnFilter {
			node := ts.NewCompositeColumnCondition(lo)
			for _, part := range parts {
				node.AddFilter(part)
			}
			return node
		}
		rule := &ts.ValueTransferRule{Regex: "length=([0-9]+);", Cast_type: ts.Variant_INTEGER}
		cases := []struct {
			filter ts.ColumnFilter
			passes bool
		}{
			{five, true}, {missing, false},
			{all(ts.LO_OR, five, missing), true}, {all(ts.LO_AND, five, missing), false},
			{all(ts.LO_NOT, missing), true},
			{all(ts.LO_AND, five, all(ts.LO_NOT, all(ts.LO_AND, five, missing))), true},
			{ts.NewSingleColumnValueRegexFilter("s", ts.CT_GREATER_THAN, rule, int64(41)), true},
			{ts.NewSingleColumnValueRegexFilter("s", ts.CT_LESS_THAN, rule, int64(42)), false},
		}
		for n, one := range cases {
			query := criteria(name, row)
			query.SetFilter(one.filter)
			same(fmt.Sprint("filter ", n), values(get(query)) != nil, one.passes)
		}
	})
	check("pagination-filter", func() {
		row := key("page", int64(1))
		cells := []ts.AttributeColumn{}
		for n := 0; n < 10; n++ {
			cells = append(cells, column(fmt.Sprintf("c%d", n), int64(n)))
		}
		put(name, row, cells...)
		query := criteria(name, row)
		query.SetFilter(&ts.PaginationFilter{Offset: 3, Limit: 4})
		found := []string{}
		for _, cell := range get(query).Columns {
			found = append(found, cell.ColumnName)
		}
		same("page", found, []string{"c3", "c4", "c5", "c6"})
	})
	check("versions", func() {
		row := key("versions", int64(1))
		for at := int64(1); at < 9; at++ {
			change := update(name, row)
			change.PutColumnWithTimestamp("c", at, at)
			_, err := send(change)
			must(err)
		}
		seen := func(max int32, times *ts.TimeRange) []int64 {
			query := criteria(name, row)
			query.MaxVersion, query.TimeRange = max, times
			at := []int64{}
			for _, cell := range get(query).Columns {
				at = append(at, cell.Timestamp)
			}
			return at
		}
		same("kept", seen(9, nil), []int64{8, 7, 6, 5, 4})
		same("newest", seen(2, nil), []int64{8, 7})
		same("range", seen(9, &ts.TimeRange{Start: 5, End: 7}), []int64{6, 5})
		same("one", seen(0, &ts.TimeRange{Specific: 6}), []int64{6})
	})
	check("column-choice", func() {
		row := key("columns", int64(1))
		put(name, row, column("a", int64(1)), column("b", int64(1)), column("c", int64(1)),
			column("公司", int64(1)))
		query := criteria(name, row)
		query.ColumnsToGet = []string{"公司", "b"}
		same("named", len(values(get(query))), 2)
		query.ColumnsToGet = []string{"x"}
		that("none of the named", values(get(query)) == nil)
		query.ColumnsToGet = nil
		start, end := "b", "c"
		query.StartColumn, query.EndColumn = &start, &end
		same("between", values(get(query)), map[string]any{"b": int64(1)})
	})
	check("wide-columns", func() { checkWide(name) })
	check("batch-write-and-get", func() { checkBatches(name) })
	check("batch-row-errors", func() {
		query := &ts.MultiRowQueryCriteria{TableName: name, MaxVersion: 1}
		query.PrimaryKey = []*ts.PrimaryKey{key("a", int64(1)), key("a", "b")}
		absent := &ts.MultiRowQueryCriteria{TableName: "absent", MaxVersion: 1}
		absent.PrimaryKey = []*ts.PrimaryKey{key("a", int64(1))}
		told, err := client.BatchGetRow(&ts.BatchGetRowRequest{
			MultiRowQueryCriteria: []*ts.MultiRowQueryCriteria{query, absent}})
		must(err)
		here, there := told.TableToRowsResult[name], told.TableToRowsResult["absent"]
		that("a good row", here[0].IsSucceed)
		same("a wrong key", here[1].Error.Code, "OTSInvalidPK")
		same("no table", there[0].Error,
			ts.Error{Code: "OTSObjectNotExist", Message: "Requested table does not exist."})
	})
	check("range-pages", func() { checkRange(ts.PlainBuffer) })
	check("range-matrix", func() { checkRange(ts.SimpleRowMatrix) })
	check("range-filter", checkRangeFilter)
	check("capacity-units", func() {
		row := key("units", int64(1))
		wrote := put(name, row, column("c", make([]byte, 5000)))
		same("put", *wrote.ConsumedCapacityUnit, ts.ConsumedCapacityUnit{Read: 0, Write: 2})
		same("get", *get(criteria(name, row)).ConsumedCapacityUnit,
			ts.ConsumedCapacityUnit{Read: 2, Write: 0})
		gone := &ts.DeleteRowChange{TableName: name, PrimaryKey: row}
		gone.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
		told, err := client.DeleteRow(&ts.DeleteRowRequest{DeleteRowChange: gone})
		must(err)
		same("delete", *told.ConsumedCapacityUnit, ts.ConsumedCapacityUnit{Read: 1, Write: 1})
		same("nothing", *get(criteria(name, row)).ConsumedCapacityUnit,
			ts.ConsumedCapacityUnit{Read: 1, Write: 0})
	})
}

func checkBatches(name string) {
	other := table(nil)
	defer drop(other)
	request := &ts.BatchWriteRowRequest{}
	for _, target := range []string{name, other} {
		put(target, key("batch", int64(0)), column("c", "old"))
		for n := int64(0); n < 99; n++ {
			change := &ts.PutRowChange{TableName: target, PrimaryKey: key("batch", n),
				Columns: []ts.AttributeColumn{column("c", n)}}
			change.SetCondition(ts.RowExistenceExpectation_EXPECT_NOT_EXIST)
			request.AddRowChange(change)
		}
		change := update(target, key("batch", int64(99)))
		change.PutColumn("c", target)
		request.AddRowChange(change)
	}
	told, err := client.BatchWriteRow(request)
	must(err)
	for _, target := range []string{name, other} {
		results := told.TableToRowsResult[target]
		same("results", len(results), 100)
		same("failed", results[0].Error,
			ts.Error{Code: "OTSConditionCheckFail", Message: "Condition check failed."})
		for n, result := range results[1:] {
			that("written", result.IsSucceed && int(result.Index) == n+1)
		}
		query := &ts.MultiRowQueryCriteria{TableName: target, MaxVersion: 1}
		query.PrimaryKey = []*ts.PrimaryKey{key("batch", int64(99)), key("batch", int64(0)),
			key("batch", int64(500))}
		found, err := client.BatchGetRow(&ts.BatchGetRowRequest{
			MultiRowQueryCriteria: []*ts.MultiRowQueryCriteria{query}})
		must(err)
		rows := found.TableToRowsResult[target]
		same("updated", rows[0].Columns[0].Value, target)
		same("kept", rows[1].Columns[0].Value, "old")
		same("absent", len(rows[2].PrimaryKey.PrimaryKeys), 0)
	}
}

func filled() string {
	name := table(nil)
	for _, letter := range []string{"a", "b", "c"} {
		request := &ts.BatchWriteRowRequest{}
		for n := int64(0); n < 100; n++ {
			change := update(name, key(letter, n))
			change.PutColumn("n", n)
			change.PutColumn("even", n%2 == 0)
			request.AddRowChange(change)
		}
		_, err := client.BatchWriteRow(request)
		must(err)
	}
	return name
}

func bounds(pk1 string) (*ts.PrimaryKey, *ts.PrimaryKey) {
	low, high := &ts.PrimaryKey{}, &ts.PrimaryKey{}
	low.AddPrimaryKeyColumn("pk1", pk1)
	low.AddPrimaryKeyColumnWithMinValue("pk2")
	high.AddPrimaryKeyColumn("pk1", pk1)
	high.AddPrimaryKeyColumnWithMaxValue("pk2")
	return low, high
}

// checkRange reads one partition in pages, both ways.
func checkRange(block ts.DataBlockType) {
	name := filled()
	defer drop(name)
	low, high := bounds("b")
	for _, limit := range []int32{0, 1, 99, 100} {
		for _, direction := range []ts.Direction{ts.FORWARD, ts.BACKWARD} {
			query := &ts.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: low,
				EndPrimaryKey: high, MaxVersion: 1, Direction: direction, Limit: limit,
				DataBlockType: block, ColumnsToGet: []string{"pk1", "pk2", "n"}}
			if direction == ts.BACKWARD {
				query.StartPrimaryKey, query.EndPrimaryKey = high, low
			}
			found := []int64{}
			for query.StartPrimaryKey != nil {
				told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
				must(err)
				same("form", told.DataBlockType, block)
				for _, row := range told.Rows {
					same("value", row.Columns[0].Value, row.PrimaryKey.PrimaryKeys[1].Value)
					found = append(found, row.PrimaryKey.PrimaryKeys[1].Value.(int64))
				}
				query.StartPrimaryKey = told.NextStartPrimaryKey
			}
			same("rows", len(found), 100)
			for n, number := range found {
				want := int64(n)
				if direction == ts.BACKWARD {
					want = 99 - want
				}
				same("order", number, want)
			}
		}
	}
}

func checkRangeFilter() {
	name := filled()
	defer drop(name)
	low, high := bounds("c")
	query := &ts.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: low, EndPrimaryKey: high,
		MaxVersion: 1, Filter: ts.NewSingleColumnCondition("even", ts.CT_EQUAL, true)}
	told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
	must(err)
	same("rows", len(told.Rows), 50)
	that("end", told.NextStartPrimaryKey == nil)
}

// checkWide reads a row of 3000 columns in slices: by names, by pages, in a batch and in a range.
func checkWide(name string) {
	row := key("wide", int64(1))
	for start := 0; start < 3000; start += 1000 {
		change := update(name, row)
		for n := start; n < start+1000; n++ {
			change.PutColumn(fmt.Sprintf("c%04d", n), int64(n))
		}
		_, err := send(change)
		must(err)
	}
	same("whole", len(get(criteria(name, row)).Columns), 3000)
	for _, slice := range [][2]int{{0, 1}, {999, 1001}, {2990, 3000}, {0, 3000}} {
		query := criteria(name, row)
		query.SetStartColumn(fmt.Sprintf("c%04d", slice[0]))
		query.SetEndtColumn(fmt.Sprintf("c%04d", slice[1]))
		found := get(query).Columns
		same("columns", len(found), slice[1]-slice[0])
		same("first", found[0].Value, int64(slice[0]))
		batch := &ts.MultiRowQueryCriteria{TableName: name, MaxVersion: 1,
			PrimaryKey:  []*ts.PrimaryKey{row, key("wide", int64(2))},
			StartColumn: query.StartColumn, EndColumn: query.EndColumn}
		told, err := client.BatchGetRow(&ts.BatchGetRowRequest{
			MultiRowQueryCriteria: []*ts.MultiRowQueryCriteria{batch}})
		must(err)
		same("in a batch", len(told.TableToRowsResult[name][0].Columns), slice[1]-slice[0])
		low, high := bounds("wide")
		ranged, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: &ts.RangeRowQueryCriteria{
			TableName: name, StartPrimaryKey: low, EndPrimaryKey: high, MaxVersion: 1,
			StartColumn: query.StartColumn, EndColumn: query.EndColumn}})
		must(err)
		same("in a range", len(ranged.Rows[0].Columns), slice[1]-slice[0])
	}
	found := 0
	for start := ""; ; {
		query := criteria(name, row)
		if start != "" {
			query.SetStartColumn(start)
		}
		query.SetFilter(&ts.PaginationFilter{Limit: 700})
		page := get(query).Columns
		found += len(page)
		if len(page) < 700 {
			break
		}
		start = page[699].ColumnName + "\x00"
	}
	same("page by page", found, 3000)
	query := criteria(name, row)
	query.SetStartColumn("d")
	told := get(query)
	same("behind the last", len(told.PrimaryKey.PrimaryKeys) > 0 && len(told.Columns) == 0, true)
}
