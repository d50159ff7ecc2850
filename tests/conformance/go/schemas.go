package main

import (
	"bytes"
	"fmt"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkSchemas() {
	check("table-limits", checkTableLimits)
	check("table-quota", checkQuota)
	check("reserved-throughput", checkThroughput)
	check("defined-columns", checkDefined)
	check("defined-column-errors", checkDefinedErrors)
	check("split-points", checkSplits)
	check("split-point-errors", checkSplitErrors)
}

func create(meta *ts.TableMeta, option *ts.TableOption) error {
	_, err := client.CreateTable(&ts.CreateTableRequest{TableMeta: meta, TableOption: option,
		ReservedThroughput: &ts.ReservedThroughput{}})
	return err
}

func createNamed(name string, columns ...string) error {
	meta := &ts.TableMeta{TableName: name}
	for _, column := range columns {
		meta.AddPrimaryKeyColumn(column, ts.PrimaryKeyType_STRING)
	}
	return create(meta, ts.NewTableOption(-1, 1))
}

func checkTableLimits() {
	for _, name := range []string{"0", "3t", "-", "T#", "表", "a b", "a.b"} {
		text := fmt.Sprintf("Invalid table name: '%s'.", name)
		invalid(createNamed(name, "k"), text)
		_, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
		invalid(err, text)
		_, err = client.DeleteTable(&ts.DeleteTableRequest{TableName: name})
		invalid(err, text)
		_, err = fetch(criteria(name, partition("a")))
		invalid(err, text)
	}
	for _, name := range []string{"_0", "_T", "A0", strings.Repeat("n", 100)} {
		must(createNamed(name, "k"))
		drop(name)
	}
	invalid(createNamed("go_limits", "a", "b", "c", "d", "e"),
		"The number of primary key columns must be in range: [1, 4].")
	invalid(createNamed("go_limits", "PK0", "PK0"), "Duplicated primary key name: 'PK0'.")
	for _, column := range []string{"#", "#abc", "#公司", "# ", strings.Repeat("n", 256)} {
		invalid(createNamed("go_limits", column), fmt.Sprintf("Invalid column name: '%s'.", column))
	}
	for _, column := range []string{"公司", "a.:'\"$&*()/\\\n\r b", strings.Repeat("n", 255)} {
		must(createNamed("go_limits", column))
		drop("go_limits")
	}
	meta := &ts.TableMeta{TableName: "go_limits"}
	meta.AddPrimaryKeyColumnOption("k", ts.PrimaryKeyType_INTEGER, ts.AUTO_INCREMENT)
	refused(create(meta, ts.NewTableOption(-1, 1)), 400, "OTSParameterInvalid", "")
	for _, option := range []*ts.TableOption{ts.NewTableOption(-1, 0), ts.NewTableOption(-1, -1),
		ts.NewTableOption(0, 1), ts.NewTableOption(86399, 1)} {
		meta := &ts.TableMeta{TableName: "go_limits"}
		meta.AddPrimaryKeyColumn("k", ts.PrimaryKeyType_STRING)
		refused(create(meta, option), 400, "OTSParameterInvalid", "")
	}
}

// checkQuota makes tables until no more are allowed: 64 in an instance.
func checkQuota() {
	listed, err := client.ListTable()
	must(err)
	for n := len(listed.TableNames); n < 64; n++ {
		name := fmt.Sprintf("go_quota_%d", n)
		must(createNamed(name, "k"))
		defer drop(name)
	}
	refused(createNamed("go_quota", "k"), 403, "OTSQuotaExhausted",
		"Number of tables exceeds the quota:64.")
}

// checkThroughput: what a table reserves is told, and changes rarely; creating it counts as a change.
func checkThroughput() {
	meta := &ts.TableMeta{TableName: "go_reserved"}
	meta.AddPrimaryKeyColumn("k", ts.PrimaryKeyType_STRING)
	_, err := client.CreateTable(&ts.CreateTableRequest{TableMeta: meta,
		TableOption: ts.NewTableOption(-1, 1), ReservedThroughput: &ts.ReservedThroughput{Readcap: 3, Writecap: 5}})
	must(err)
	defer drop(meta.TableName)
	told, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: meta.TableName})
	must(err)
	same("reserved", *told.ReservedThroughput, ts.ReservedThroughput{Readcap: 3, Writecap: 5})
	reserve := func(read, write int) error {
		_, err := client.UpdateTable(&ts.UpdateTableRequest{TableName: meta.TableName,
			ReservedThroughput: &ts.ReservedThroughput{Readcap: read, Writecap: write}})
		return err
	}
	must(reserve(3, 5))
	refused(reserve(4, 5), 403, "OTSTooFrequentReservedThroughputAdjustment",
		"Capacity unit adjustment is too frequent.")
	for _, units := range [][2]int{{-1, 5}, {3, -1}, {5001, 5}, {3, 5001}} {
		refused(reserve(units[0], units[1]), 400, "OTSParameterInvalid", "")
	}
}

func defined(name string) []ts.DefinedColumnSchema {
	told, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
	must(err)
	found := []ts.DefinedColumnSchema{}
	for _, column := range told.TableMeta.DefinedColumns {
		found = append(found, *column)
	}
	return found
}

func define(name string, columns ...ts.DefinedColumnSchema) error {
	request := &ts.AddDefinedColumnRequest{TableName: name}
	for _, column := range columns {
		request.AddDefinedColumn(column.Name, column.ColumnType)
	}
	_, err := client.AddDefinedColumn(request)
	return err
}

func undefine(name string, columns ...string) error {
	_, err := client.DeleteDefinedColumn(&ts.DeleteDefinedColumnRequest{
		TableName: name, DefinedColumns: columns})
	return err
}

func checkDefined() {
	meta := &ts.TableMeta{}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumn("pk2", ts.PrimaryKeyType_INTEGER)
	columns := []ts.DefinedColumnSchema{
		{Name: "i", ColumnType: ts.DefinedColumn_INTEGER},
		{Name: "d", ColumnType: ts.DefinedColumn_DOUBLE},
		{Name: "b", ColumnType: ts.DefinedColumn_BOOLEAN},
		{Name: "s", ColumnType: ts.DefinedColumn_STRING},
		{Name: "x", ColumnType: ts.DefinedColumn_BINARY},
	}
	for _, column := range columns[:3] {
		meta.AddDefinedColumn(column.Name, column.ColumnType)
	}
	name := tableOf(meta, nil)
	defer drop(name)
	same("created", defined(name), columns[:3])
	must(define(name, columns[3:]...))
	same("added", defined(name), columns)
	put(name, key("a", int64(1)), column("i", "of any type"), column("s", "text"))
	must(undefine(name, "d", "s"))
	same("deleted", defined(name), []ts.DefinedColumnSchema{columns[0], columns[2], columns[4]})
	same("values stay", read(name, key("a", int64(1))),
		map[string]any{"i": "of any type", "s": "text"})
}

func checkDefinedErrors() {
	name := table(nil)
	defer drop(name)
	many := []ts.DefinedColumnSchema{}
	for n := 0; n < 33; n++ {
		many = append(many, ts.DefinedColumnSchema{Name: fmt.Sprint("c", n),
			ColumnType: ts.DefinedColumn_INTEGER})
	}
	limit := "The number of defined columns must be in range: [0, 32]."
	invalid(define(name, many...), limit)
	must(define(name, many[:32]...))
	invalid(define(name, many[32]), limit)
	must(undefine(name, "c31"))
	for _, twice := range []string{"c0", "pk1"} {
		refused(define(name, ts.DefinedColumnSchema{Name: twice, ColumnType: ts.DefinedColumn_STRING}),
			400, "OTSParameterInvalid", "")
	}
	invalid(define(name, ts.DefinedColumnSchema{Name: "#c", ColumnType: ts.DefinedColumn_STRING}),
		"Invalid column name: '#c'.")
	refused(undefine(name, "unknown"), 400, "OTSParameterInvalid", "")
	none := "Requested table does not exist."
	refused(define("absent", many[0]), 404, "OTSObjectNotExist", none)
	refused(undefine("absent", "c0"), 404, "OTSObjectNotExist", none)
	same("kept", len(defined(name)), 31)
}

func splits(name string, size int64, unit *int64, limit *int32) ([]*ts.Split, error) {
	told, err := client.ComputeSplitPointsBySize(&ts.ComputeSplitPointsBySizeRequest{
		TableName: name, SplitSize: size, SplitSizeUnitInByte: unit, SplitPointLimit: limit})
	if err != nil {
		return nil, err
	}
	return told.Splits, nil
}

// checkSplits cuts ten rows of a mebibyte: the parts follow one another and hold every row.
func checkSplits() {
	name := table(nil)
	defer drop(name)
	whole, err := splits(name, 1, nil, nil)
	must(err)
	same("of an empty table", len(whole), 1)
	same("location", len(whole[0].Location), 32)
	for n := int64(0); n < 10; n++ {
		put(name, key("a", n), column("c", bytes.Repeat([]byte("x"), mib2/2)))
	}
	unit := int64(mib2 / 2)
	parts, err := splits(name, 2, &unit, nil)
	must(err)
	that(fmt.Sprint("about five parts, not ", len(parts)), len(parts) >= 4 && len(parts) <= 6)
	found := 0
	for n, part := range parts {
		same("location", len(part.Location), 32)
		if n > 0 {
			same("no gap", part.LowerBound, parts[n-1].UpperBound)
		}
		query := &ts.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: part.LowerBound,
			EndPrimaryKey: part.UpperBound, MaxVersion: 1, ColumnsToGet: []string{"pk1"}}
		told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
		must(err)
		that("in one answer", told.NextStartPrimaryKey == nil)
		found += len(told.Rows)
	}
	same("rows", found, 10)
	most := int32(1)
	parts, err = splits(name, 2, &unit, &most)
	must(err)
	same("at most one point", len(parts), 2)
}

func checkSplitErrors() {
	name := table(nil)
	defer drop(name)
	small := int64(1048575)
	for _, size := range []int64{0, -1} {
		_, err := splits(name, size, nil, nil)
		invalid(err, "The split_size should be greater than 0.")
	}
	_, err := splits(name, 1, &small, nil)
	invalid(err, "The split_size_unit_in_byte should be greater equal than: 1048576")
	_, err = splits("absent", 1, nil, nil)
	refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
}
