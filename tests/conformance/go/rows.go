package main

import (
	"bytes"
	"math"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

const mib2 = 2097152

var everyValue = map[string]any{
	"zero": int64(0), "int64_min": int64(math.MinInt64), "int64_max": int64(math.MaxInt64),
	"double": 3.14159, "double_huge": math.MaxFloat64, "double_tiny": math.SmallestNonzeroFloat64,
	"true": true, "false": false,
	"text": "plain", "text_empty": "", "text_unicode": "Grüße 你好 🌊", "text_zero": "a\x00b",
	"bytes": []byte{0, 1, 127, 128, 255}, "bytes_empty": []byte{},
	"公司": "a name that is not ASCII", "a.:'\"$&*()/\\\n b": "and one of signs",
}

func checkRows() {
	name := table(nil)
	defer drop(name)
	check("types-in-columns", func() {
		cells := []ts.AttributeColumn{}
		for column_, value := range everyValue {
			cells = append(cells, column(column_, value))
		}
		put(name, key("types", int64(1)), cells...)
		same("row", read(name, key("types", int64(1))), everyValue)
		for _, wrong := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			text := "Infinity can't be set to double value."
			if math.IsNaN(wrong) {
				text = "NaN can't be set to double value."
			}
			_, err := sendPut(putting(name, key("types", int64(2)), column("c", wrong)))
			refused(err, 400, "OTSParameterInvalid", text)
		}
		put(name, key("types", int64(3)), column("zero", math.Copysign(0, -1)))
		that("minus zero", math.Signbit(read(name, key("types", int64(3)))["zero"].(float64)))
	})
	check("types-in-keys", checkKeys)
	check("value-edges", func() {
		largest := bytes.Repeat([]byte("x"), mib2)
		put(name, key("edge", int64(1)), column("c", largest), column("d", string(largest)))
		found := read(name, key("edge", int64(1)))
		that("bytes", bytes.Equal(found["c"].([]byte), largest))
		that("text", found["d"] == string(largest))
		change := &ts.PutRowChange{TableName: name, PrimaryKey: key("edge", int64(1)),
			Columns: []ts.AttributeColumn{column("c", append(largest, 'x'))}}
		change.SetCondition(ts.RowExistenceExpectation_IGNORE)
		_, err := client.PutRow(&ts.PutRowRequest{PutRowChange: change})
		refused(err, 400, "OTSParameterInvalid", "The length of attribute column: 'c' exceeds the "+
			"MaxLength:2097152 with CurrentLength:2097153.")
		change.PrimaryKey = key(strings.Repeat("k", 1025), int64(1))
		change.Columns = nil
		_, err = client.PutRow(&ts.PutRowRequest{PutRowChange: change})
		refused(err, 400, "OTSParameterInvalid", "The length of primary key column: 'pk1' exceeds "+
			"the MaxLength:1024 with CurrentLength:1025.")
	})
	check("column-count", func() {
		cells := []ts.AttributeColumn{}
		for n := 0; n < 1024; n++ {
			cells = append(cells, column("c"+strings.Repeat("x", n%200)+string(rune('a'+n/200)), int64(n)))
		}
		put(name, key("many", int64(1)), cells...)
		same("columns", len(read(name, key("many", int64(1)))), 1024)
		change := &ts.PutRowChange{TableName: name, PrimaryKey: key("many", int64(1)),
			Columns: append(cells, column("more", int64(1)))}
		change.SetCondition(ts.RowExistenceExpectation_IGNORE)
		_, err := client.PutRow(&ts.PutRowRequest{PutRowChange: change})
		refused(err, 400, "OTSParameterInvalid", "The number of attribute columns exceeds the limit, "+
			"limit count: 1024, column count: 1025.")
	})
	check("put-update-delete", func() {
		row := key("life", int64(1))
		put(name, row, version("a", int64(1), 10), version("b", int64(1), 10), version("c", int64(1), 10))
		change := update(name, row)
		change.PutColumnWithTimestamp("a", int64(2), 20)
		change.DeleteColumnWithTimestamp("b", 10)
		change.DeleteColumn("c")
		change.PutColumn("d", "new")
		_, err := send(change)
		must(err)
		query := criteria(name, row)
		query.MaxVersion = 5
		found := get(query)
		same("cells", len(found.Columns), 3)
		same("newest first", []int64{found.Columns[0].Timestamp, found.Columns[1].Timestamp},
			[]int64{20, 10})
		same("last", found.Columns[2].Value, "new")
		put(name, row)
		same("a row of its key", read(name, row), map[string]any{})
		gone := &ts.DeleteRowChange{TableName: name, PrimaryKey: row}
		gone.SetCondition(ts.RowExistenceExpectation_IGNORE)
		_, err = client.DeleteRow(&ts.DeleteRowRequest{DeleteRowChange: gone})
		must(err)
		that("absent", read(name, row) == nil)
	})
	check("increment", func() {
		row := key("increment", int64(1))
		for _, step := range [][2]int64{{5, 5}, {-7, -2}, {math.MaxInt64, math.MaxInt64 - 2}} {
			change := update(name, row)
			change.IncrementColumn("n", step[0])
			change.SetReturnIncrementValue()
			change.AppendIncrementColumnToReturn("n")
			told, err := send(change)
			must(err)
			same("returned", told.Columns[0].Value, step[1])
		}
		change := update(name, row)
		change.IncrementColumn("n", 3)
		_, err := send(change)
		refused(err, 400, "OTSParameterInvalid", "")
		same("kept", read(name, row)["n"], int64(math.MaxInt64-2))
	})
	check("increment-returns", func() { checkIncrementReturns(name) })
	check("auto-increment", checkAutoIncrement)
	check("auto-increment-rules", checkAutoRules)
	check("expectations", func() {
		row := key("expect", int64(1))
		for _, there := range []bool{false, true} {
			wrong, right := ts.RowExistenceExpectation_EXPECT_EXIST, ts.RowExistenceExpectation_EXPECT_NOT_EXIST
			if there {
				wrong, right = right, wrong
			}
			change := update(name, row)
			change.PutColumn("c", there)
			change.SetCondition(wrong)
			_, err := send(change)
			refused(err, 403, "OTSConditionCheckFail", "Condition check failed.")
			change.SetCondition(right)
			_, err = send(change)
			must(err)
			same("written", read(name, row)["c"], there)
		}
	})
	check("column-conditions", func() {
		row := key("condition", int64(1))
		put(name, row, column("n", int64(5)))
		for comparator, passes := range map[ts.ComparatorType]bool{
			ts.CT_EQUAL: true, ts.CT_NOT_EQUAL: false, ts.CT_GREATER_THAN: false,
			ts.CT_GREATER_EQUAL: true, ts.CT_LESS_THAN: false, ts.CT_LESS_EQUAL: true,
		} {
			change := update(name, row)
			change.PutColumn("done", true)
			change.SetColumnCondition(ts.NewSingleColumnCondition("n", comparator, int64(5)))
			_, err := send(change)
			if passes {
				must(err)
			} else {
				refused(err, 403, "OTSConditionCheckFail", "Condition check failed.")
			}
		}
	})
}

func checkKeys() {
	for kind, edges := range map[ts.PrimaryKeyType][]any{
		ts.PrimaryKeyType_INTEGER: {int64(math.MinInt64), int64(-1), int64(0), int64(math.MaxInt64)},
		ts.PrimaryKeyType_STRING:  {"", "\x00", "a", strings.Repeat("a", 1024), strings.Repeat("你", 341)},
		ts.PrimaryKeyType_BINARY:  {[]byte{}, []byte{0}, bytes.Repeat([]byte{255}, 1024)},
	} {
		meta := &ts.TableMeta{}
		meta.AddPrimaryKeyColumn("k", kind)
		name := tableOf(meta, nil)
		for n := range edges {
			pk := &ts.PrimaryKey{}
			pk.AddPrimaryKeyColumn("k", edges[len(edges)-1-n])
			put(name, pk, column("c", int64(1)))
		}
		low, high := &ts.PrimaryKey{}, &ts.PrimaryKey{}
		low.AddPrimaryKeyColumnWithMinValue("k")
		high.AddPrimaryKeyColumnWithMaxValue("k")
		told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: &ts.RangeRowQueryCriteria{
			TableName: name, StartPrimaryKey: low, EndPrimaryKey: high, MaxVersion: 1}})
		must(err)
		found := []any{}
		for _, row := range told.Rows {
			found = append(found, row.PrimaryKey.PrimaryKeys[0].Value)
		}
		same("order", found, edges)
		drop(name)
	}
}

func checkAutoIncrement() {
	meta := &ts.TableMeta{}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumnOption("pk2", ts.PrimaryKeyType_INTEGER, ts.AUTO_INCREMENT)
	name := tableOf(meta, nil)
	defer drop(name)
	last := int64(0)
	for n := int64(0); n < 10; n++ {
		pk := &ts.PrimaryKey{}
		pk.AddPrimaryKeyColumn("pk1", "a")
		pk.AddPrimaryKeyColumnWithAutoIncrement("pk2")
		change := &ts.PutRowChange{TableName: name, PrimaryKey: pk,
			Columns: []ts.AttributeColumn{column("c", n)}}
		change.SetCondition(ts.RowExistenceExpectation_IGNORE)
		change.SetReturnPk()
		told, err := client.PutRow(&ts.PutRowRequest{PutRowChange: change})
		must(err)
		value := told.PrimaryKey.PrimaryKeys[1].Value.(int64)
		that("increases", value > last)
		last = value
		same("row", read(name, key("a", value)), map[string]any{"c": n})
	}
}

// checkIncrementReturns: several counters in one change, of which those named are told.
func checkIncrementReturns(name string) {
	row := key("counters", int64(1))
	put(name, row, column("n", int64(10)), column("other", "kept"))
	change := update(name, row)
	change.IncrementColumn("n", math.MinInt64)
	change.IncrementColumn("m", -3)
	change.IncrementColumn("quiet", 1)
	change.PutColumn("s", "beside")
	change.SetReturnIncrementValue()
	change.AppendIncrementColumnToReturn("n")
	change.AppendIncrementColumnToReturn("m")
	told, err := send(change)
	must(err)
	found := map[string]any{}
	for _, cell := range told.Columns {
		found[cell.ColumnName] = cell.Value
		that("a version", cell.Timestamp > 0)
	}
	same("returned", found, map[string]any{"n": int64(math.MinInt64 + 10), "m": int64(-3)})
	same("row", read(name, row), map[string]any{"n": int64(math.MinInt64 + 10), "m": int64(-3),
		"quiet": int64(1), "s": "beside", "other": "kept"})
	change = update(name, row)
	change.IncrementColumn("n", -11)
	_, err = send(change)
	refused(err, 400, "OTSParameterInvalid", "")
}

// checkAutoRules: a row's number is given by the server alone, in UpdateRow too.
func checkAutoRules() {
	meta := &ts.TableMeta{}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumnOption("pk2", ts.PrimaryKeyType_INTEGER, ts.AUTO_INCREMENT)
	name, failed := tableOf(meta, nil), "Condition check failed."
	defer drop(name)
	_, err := sendPut(putting(name, key("a", int64(7)), column("c", int64(1))))
	refused(err, 403, "OTSConditionCheckFail", failed)
	change := update(name, key("a", int64(7)))
	change.PutColumn("c", int64(1))
	_, err = send(change)
	refused(err, 403, "OTSConditionCheckFail", failed)
	auto := &ts.PrimaryKey{}
	auto.AddPrimaryKeyColumn("pk1", "a")
	auto.AddPrimaryKeyColumnWithAutoIncrement("pk2")
	change = update(name, auto)
	change.IncrementColumn("n", 5)
	_, err = send(change)
	must(err)
	low, high := bounds("a")
	told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: &ts.RangeRowQueryCriteria{
		TableName: name, StartPrimaryKey: low, EndPrimaryKey: high, MaxVersion: 1}})
	must(err)
	same("rows", len(told.Rows), 1)
	assigned := told.Rows[0].PrimaryKey
	put(name, assigned, column("c", "again"))
	same("a row that is there", read(name, assigned), map[string]any{"c": "again"})
	_, err = fetch(criteria(name, auto))
	refused(err, 400, "OTSParameterInvalid", "PKAutoIncr can't be used for read operations.")
}
