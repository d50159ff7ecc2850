package main

import (
	"bytes"
	"fmt"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkBatchWrites() {
	check("batch-atomic", checkAtomic)
	check("batch-atomic-errors", checkAtomicErrors)
	check("batch-order", func() {
		name := table(nil)
		defer drop(name)
		row := key("a", int64(1))
		told := batch(false, putting(name, row, column("c", int64(1))), deleting(name, row),
			putting(name, row, column("d", int64(2))), putting(name, key("a", int64(2))))
		for _, result := range told[name] {
			that("written", result.IsSucceed)
		}
		same("the last one", read(name, row), map[string]any{"d": int64(2)})
		same("a bare key", read(name, key("a", int64(2))), map[string]any{})
	})
	check("batch-returns", checkBatchReturns)
	check("batch-limits", checkBatchLimits)
}

func batch(atomic bool, changes ...ts.RowChange) map[string][]ts.RowResult {
	told, err := sendBatch(atomic, changes...)
	must(err)
	return told.TableToRowsResult
}

func sendBatch(atomic bool, changes ...ts.RowChange) (*ts.BatchWriteRowResponse, error) {
	request := &ts.BatchWriteRowRequest{IsAtomic: atomic}
	for _, change := range changes {
		request.AddRowChange(change)
	}
	return client.BatchWriteRow(request)
}

// checkAtomic writes rows of two tables, each table's as one.
func checkAtomic() {
	name, other := table(nil), table(nil)
	defer drop(name)
	defer drop(other)
	put(name, key("p", int64(3)), column("c", "old"))
	change := update(name, key("p", int64(2)))
	change.PutColumn("c", "updated")
	told := batch(true, putting(name, key("p", int64(1)), column("c", "put")), change,
		deleting(name, key("p", int64(3))), putting(other, key("q", int64(1)), column("c", "other")))
	for _, result := range append(told[name], told[other]...) {
		that("written", result.IsSucceed)
		same("units", result.ConsumedCapacityUnit.Write, int32(1))
	}
	same("put", read(name, key("p", int64(1))), map[string]any{"c": "put"})
	same("updated", read(name, key("p", int64(2))), map[string]any{"c": "updated"})
	same("deleted", read(name, key("p", int64(3))), map[string]any(nil))
	same("other", read(other, key("q", int64(1))), map[string]any{"c": "other"})
}

// checkAtomicErrors: one row that is refused refuses all; rows of two partition keys are out of scope.
func checkAtomicErrors() {
	name := table(nil)
	defer drop(name)
	strict := putting(name, key("p", int64(2)), column("c", int64(2)))
	strict.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
	rows := batch(true, putting(name, key("p", int64(1)), column("c", int64(1))), strict)[name]
	for _, row := range rows {
		same("code", row.Error.Code, "OTSConditionCheckFail")
	}
	same("its text", rows[1].Error.Message, "Condition check failed.")
	same("not written", read(name, key("p", int64(1))), map[string]any(nil))
	rows = batch(true, putting(name, key("0", int64(1))), putting(name, key("1", int64(1))))[name]
	for _, row := range rows {
		same("scope", row.Error, ts.Error{Code: "OTSDataOutOfRange",
			Message: "Data out of scope of atomic. Atomic PartKey:0. Data PartKey:1"})
	}
	same("nothing", read(name, key("0", int64(1))), map[string]any(nil))
	rows = batch(true, putting("absent", key("p", int64(1))))["absent"]
	same("no table", rows[0].Error,
		ts.Error{Code: "OTSObjectNotExist", Message: "Requested table does not exist."})
}

func checkBatchReturns() {
	meta := &ts.TableMeta{}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumnOption("pk2", ts.PrimaryKeyType_INTEGER, ts.AUTO_INCREMENT)
	auto, name := tableOf(meta, nil), table(nil)
	defer drop(auto)
	defer drop(name)
	changes := []ts.RowChange{}
	for n := int64(0); n < 3; n++ {
		pk := &ts.PrimaryKey{}
		pk.AddPrimaryKeyColumn("pk1", "a")
		pk.AddPrimaryKeyColumnWithAutoIncrement("pk2")
		change := putting(auto, pk, column("c", n))
		change.SetReturnPk()
		step := update(name, key("counter", int64(1)))
		step.IncrementColumn("n", 5)
		step.SetReturnIncrementValue()
		step.AppendIncrementColumnToReturn("n")
		changes = append(changes, change, step)
	}
	told := batch(false, changes...)
	last := int64(0)
	for n, row := range told[auto] {
		assigned := row.PrimaryKey.PrimaryKeys[1].Value.(int64)
		that("increases", assigned > last)
		last = assigned
		same("row", read(auto, key("a", assigned)), map[string]any{"c": int64(n)})
	}
	for n, row := range told[name] {
		same("after", row.Columns[0].Value, int64(5*(n+1)))
	}
}

func checkBatchLimits() {
	name := table(nil)
	defer drop(name)
	changes, query := []ts.RowChange{}, &ts.MultiRowQueryCriteria{TableName: name, MaxVersion: 1}
	for n := int64(0); n < 201; n++ {
		changes = append(changes, putting(name, key("a", n)))
		if n < 101 {
			query.AddRow(key("a", n))
		}
	}
	_, err := sendBatch(false, changes...)
	invalid(err, "Rows count exceeds the upper limit: 200.")
	for _, row := range batch(false, changes[:200]...)[name] {
		that("written", row.IsSucceed)
	}
	request := &ts.BatchGetRowRequest{MultiRowQueryCriteria: []*ts.MultiRowQueryCriteria{query}}
	_, err = client.BatchGetRow(request)
	invalid(err, "Rows count exceeds the upper limit: 100.")
	query.PrimaryKey = query.PrimaryKey[:100]
	_, err = client.BatchGetRow(request)
	must(err)
	// A row is 3 + 1 bytes and 3 + 8 of its key, 1 of its column's name, and its value.
	sized := func(size int) []ts.RowChange {
		half := bytes.Repeat([]byte("x"), mib2-16)
		rest := bytes.Repeat([]byte("x"), size-mib2-16)
		return []ts.RowChange{putting(name, key("a", int64(1)), column("c", half)),
			putting(name, key("a", int64(2)), column("c", rest))}
	}
	batch(false, sized(2*mib2)...)
	_, err = sendBatch(false, sized(2*mib2+1)...)
	invalid(err, "The total data size of BatchWriteRow request exceeds the limit, limit size: "+
		"4194304, data size: 4194305.")
	_, err = sendBatch(false)
	invalid(err, "No row is specified in BatchWriteRow.")
	_, err = client.BatchWriteRow(&ts.BatchWriteRowRequest{
		RowChangesGroupByTable: map[string][]ts.RowChange{name: {}}})
	invalid(err, fmt.Sprintf("No operation is specified for table: '%s'.", name))
	_, err = client.BatchGetRow(&ts.BatchGetRowRequest{})
	invalid(err, "No row specified in the request of BatchGetRow.")
	query.PrimaryKey = nil
	told, err := client.BatchGetRow(request)
	must(err)
	same("no rows of a table", len(told.TableToRowsResult[name]), 0)
}
