package main

import (
	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

const conflict = "Data is being modified by the other request."

func checkTransactions() {
	check("transaction-commit", checkCommit)
	check("transaction-abort", checkAbort)
	check("transaction-isolation", hastily(checkIsolation))
	check("transaction-range", checkTransactionRange)
	check("transaction-conditions", checkTransactionConditions)
	check("transaction-scope", checkScope)
	check("transaction-errors", checkTransactionErrors)
	check("transaction-disallowed", func() {
		meta, allowed := &ts.TableMeta{TableName: "go_no_transactions"}, false
		meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
		_, err := client.CreateTable(&ts.CreateTableRequest{TableMeta: meta,
			TableOption: ts.NewTableOption(-1, 1), ReservedThroughput: &ts.ReservedThroughput{},
			EnableLocalTxn: &allowed})
		must(err)
		defer drop(meta.TableName)
		_, err = start(meta.TableName, partition("p"))
		refused(err, 400, "OTSParameterInvalid", "Try to call method using explicit transaction on "+
			"explicit-transaction-disabled table.")
	})
	check("transaction-stream", checkTransactionStream)
}

func partition(pk1 string) *ts.PrimaryKey {
	pk := &ts.PrimaryKey{}
	pk.AddPrimaryKeyColumn("pk1", pk1)
	return pk
}

func start(table string, pk *ts.PrimaryKey) (*string, error) {
	told, err := client.StartLocalTransaction(&ts.StartLocalTransactionRequest{
		TableName: table, PrimaryKey: pk})
	if err != nil {
		return nil, err
	}
	return told.TransactionId, nil
}

func within(table, pk1 string) *string {
	id, err := start(table, partition(pk1))
	must(err)
	that("an id", id != nil && *id != "")
	return id
}

func commit(id *string) error {
	_, err := client.CommitTransaction(&ts.CommitTransactionRequest{TransactionId: id})
	return err
}

func abort(id *string) error {
	_, err := client.AbortTransaction(&ts.AbortTransactionRequest{TransactionId: id})
	return err
}

func putWithin(id *string, table string, pk *ts.PrimaryKey, value any) error {
	change := putting(table, pk, column("c", value))
	change.TransactionId = id
	_, err := sendPut(change)
	return err
}

func readWithin(id *string, table string, pk *ts.PrimaryKey) map[string]any {
	query := criteria(table, pk)
	query.TransactionId = id
	return values(get(query))
}

// checkCommit writes in every way within a transaction; its reader sees it, others after the commit.
func checkCommit() {
	name := table(nil)
	defer drop(name)
	rows := []*ts.PrimaryKey{key("p", int64(0)), key("p", int64(1)), key("p", int64(2))}
	for _, row := range rows {
		put(name, row, column("c", "before"), column("n", int64(1)))
	}
	id := within(name, "p")
	must(putWithin(id, name, rows[0], "after"))
	change := update(name, rows[1])
	change.TransactionId = id
	change.PutColumn("c", "after")
	change.IncrementColumn("n", 41)
	change.SetReturnIncrementValue()
	change.AppendIncrementColumnToReturn("n")
	told, err := send(change)
	must(err)
	same("returned", told.Columns[0].Value, int64(42))
	gone := deleting(name, rows[2])
	gone.TransactionId = id
	must(sendDelete(gone))
	after := []map[string]any{{"c": "after"}, {"c": "after", "n": int64(42)}, nil}
	for n, row := range rows {
		same("within", readWithin(id, name, row), after[n])
		same("outside", read(name, row), map[string]any{"c": "before", "n": int64(1)})
	}
	must(commit(id))
	for n, row := range rows {
		same("committed", read(name, row), after[n])
	}
}

func checkAbort() {
	name := table(nil)
	defer drop(name)
	row := key("p", int64(1))
	put(name, row, column("c", "before"))
	id := within(name, "p")
	must(putWithin(id, name, row, "after"))
	must(putWithin(id, name, key("p", int64(2)), "new"))
	must(abort(id))
	same("kept", read(name, row), map[string]any{"c": "before"})
	same("absent", read(name, key("p", int64(2))), map[string]any(nil))
	missing := "Session not exist or may be timeout."
	refused(abort(id), 404, "OTSSessionNotExist", missing)
	refused(commit(id), 404, "OTSSessionNotExist", missing)
	refused(putWithin(id, name, row, "late"), 404, "OTSSessionNotExist", missing)
	again := within(name, "p")
	must(commit(again))
}

// checkIsolation holds a partition key: others' writes of it fail, of another key do not.
func checkIsolation() {
	name := table(nil)
	defer drop(name)
	row := key("p", int64(1))
	put(name, row, column("c", "before"))
	id := within(name, "p")
	_, err := start(name, partition("p"))
	refused(err, 409, "OTSRowOperationConflict", conflict)
	_, err = sendPut(putting(name, row, column("c", "other")))
	refused(err, 409, "OTSRowOperationConflict", conflict)
	change := update(name, key("p", int64(9)))
	change.PutColumn("c", "other")
	_, err = send(change)
	refused(err, 409, "OTSRowOperationConflict", conflict)
	refused(sendDelete(deleting(name, row)), 409, "OTSRowOperationConflict", conflict)
	request := &ts.BatchWriteRowRequest{}
	request.AddRowChange(putting(name, row, column("c", "other")))
	request.AddRowChange(putting(name, key("q", int64(1)), column("c", "free")))
	told, err := client.BatchWriteRow(request)
	must(err)
	results := told.TableToRowsResult[name]
	same("held", results[0].Error, ts.Error{Code: "OTSRowOperationConflict", Message: conflict})
	that("free", results[1].IsSucceed)
	same("read outside", read(name, row), map[string]any{"c": "before"})
	other := within(name, "q")
	must(putWithin(other, name, key("q", int64(2)), "beside"))
	must(commit(other))
	must(abort(id))
	put(name, row, column("c", "later"))
	same("written", read(name, row), map[string]any{"c": "later"})
}

func checkTransactionRange() {
	name := table(nil)
	defer drop(name)
	for n := int64(0); n < 6; n++ {
		put(name, key("p", n), column("c", n))
	}
	id := within(name, "p")
	must(putWithin(id, name, key("p", int64(1)), "changed"))
	must(putWithin(id, name, key("p", int64(7)), "added"))
	gone := deleting(name, key("p", int64(3)))
	gone.TransactionId = id
	must(sendDelete(gone))
	numbers := func(id *string, direction ts.Direction) []int64 {
		low, high := bounds("p")
		query := &ts.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: low, EndPrimaryKey: high,
			MaxVersion: 1, Direction: direction, TransactionId: id, Limit: 2}
		if direction == ts.BACKWARD {
			query.StartPrimaryKey, query.EndPrimaryKey = high, low
		}
		found := []int64{}
		for query.StartPrimaryKey != nil {
			told, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
			must(err)
			for _, row := range told.Rows {
				found = append(found, row.PrimaryKey.PrimaryKeys[1].Value.(int64))
			}
			query.StartPrimaryKey = told.NextStartPrimaryKey
		}
		return found
	}
	same("within", numbers(id, ts.FORWARD), []int64{0, 1, 2, 4, 5, 7})
	same("within, backward", numbers(id, ts.BACKWARD), []int64{7, 5, 4, 2, 1, 0})
	same("outside", numbers(nil, ts.FORWARD), []int64{0, 1, 2, 3, 4, 5})
	must(commit(id))
	same("committed", numbers(nil, ts.FORWARD), []int64{0, 1, 2, 4, 5, 7})
}

// checkTransactionConditions: a condition looks at what the transaction wrote; its failure ends nothing.
func checkTransactionConditions() {
	name := table(nil)
	defer drop(name)
	row := key("p", int64(1))
	id := within(name, "p")
	must(putWithin(id, name, row, int64(5)))
	attempt := func(expectation ts.RowExistenceExpectation, value int64) error {
		change := update(name, row)
		change.TransactionId = id
		change.SetCondition(expectation)
		change.SetColumnCondition(ts.NewSingleColumnCondition("c", ts.CT_EQUAL, value))
		change.PutColumn("done", true)
		_, err := send(change)
		return err
	}
	failed := "Condition check failed."
	refused(attempt(ts.RowExistenceExpectation_EXPECT_NOT_EXIST, 5), 403, "OTSConditionCheckFail", failed)
	refused(attempt(ts.RowExistenceExpectation_EXPECT_EXIST, 6), 403, "OTSConditionCheckFail", failed)
	must(attempt(ts.RowExistenceExpectation_EXPECT_EXIST, 5))
	must(commit(id))
	same("row", read(name, row), map[string]any{"c": int64(5), "done": true})
}

// checkScope: rows of another partition key or table are out of a transaction's scope.
func checkScope() {
	name, other := table(nil), table(nil)
	defer drop(name)
	defer drop(other)
	id := within(name, "p")
	beside := "Data out of scope of transaction. Transaction PartKey:p. Data PartKey:q"
	refused(putWithin(id, name, key("q", int64(1)), "v"), 400, "OTSDataOutOfRange", beside)
	query := criteria(name, key("q", int64(1)))
	query.TransactionId = id
	_, err := fetch(query)
	refused(err, 400, "OTSDataOutOfRange", beside)
	refused(putWithin(id, other, key("p", int64(1)), "v"), 400, "OTSDataOutOfRange",
		"Data out of scope of transaction. Transaction Table:"+name+". Data Table:"+other)
	must(abort(id))
}

func checkTransactionErrors() {
	name := table(nil)
	defer drop(name)
	_, err := start(name, key("p", int64(1)))
	refused(err, 400, "OTSParameterInvalid", "StartLocalTransaction support only one primary key.")
	_, err = start("absent", partition("p"))
	refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
	wrong := &ts.PrimaryKey{}
	wrong.AddPrimaryKeyColumn("pk1", int64(1))
	_, err = start(name, wrong)
	refused(err, 400, "OTSInvalidPK", "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.")
	for _, id := range []string{"", "not existed transaction id"} {
		text := "TransactionID is invalid."
		refused(commit(&id), 400, "OTSParameterInvalid", text)
		refused(abort(&id), 400, "OTSParameterInvalid", text)
		if id == "" {
			continue // In a row's operation an empty id is none.
		}
		refused(putWithin(&id, name, key("p", int64(1)), "v"), 400, "OTSParameterInvalid", text)
		query := criteria(name, key("p", int64(1)))
		query.TransactionId = &id
		_, err := fetch(query)
		refused(err, 400, "OTSParameterInvalid", text)
	}
}

// checkTransactionStream: records appear with the commit, in the order of the writes; none of an abort.
func checkTransactionStream() {
	name := streamed()
	defer drop(name)
	f := follow(name)
	aborted := within(name, "p")
	must(putWithin(aborted, name, key("p", int64(9)), "v"))
	must(abort(aborted))
	id := within(name, "p")
	for n := int64(3); n > 0; n-- {
		must(putWithin(id, name, key("p", n), n))
	}
	same("none before the commit", len(f.read(0)), 0)
	must(commit(id))
	numbers := []any{}
	for _, record := range f.read(0) {
		numbers = append(numbers, record.PrimaryKey.PrimaryKeys[1].Value)
	}
	same("records", numbers, []any{int64(3), int64(2), int64(1)})
}
