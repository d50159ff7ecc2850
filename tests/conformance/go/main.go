// Command conformance drives a server with the official Go SDK and prints a line per check:
// "ok NAME" or "FAILED NAME: why". The server is named by ROWTIDE_ENDPOINT, ROWTIDE_INSTANCE,
// ROWTIDE_KEY_ID and ROWTIDE_KEY_SECRET.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

type failure string

var (
	client *ts.TableStoreClient
	// hasty repeats nothing: the SDK repeats a conflict for five seconds.
	hasty  *ts.TableStoreClient
	failed bool
	made   int
)

func main() {
	client = ts.NewClient(os.Getenv("ROWTIDE_ENDPOINT"), os.Getenv("ROWTIDE_INSTANCE"),
		os.Getenv("ROWTIDE_KEY_ID"), os.Getenv("ROWTIDE_KEY_SECRET"))
	config := ts.NewDefaultTableStoreConfig()
	config.RetryTimes = 0
	hasty = ts.NewClientWithConfig(os.Getenv("ROWTIDE_ENDPOINT"), os.Getenv("ROWTIDE_INSTANCE"),
		os.Getenv("ROWTIDE_KEY_ID"), os.Getenv("ROWTIDE_KEY_SECRET"), "", config)
	checkTables()
	checkSchemas()
	checkRows()
	checkConditions()
	checkFilters()
	checkReads()
	checkBatchWrites()
	checkRefusals()
	checkTransactions()
	checkIndexes()
	checkIndexRefusals()
	checkStreams()
	if failed {
		os.Exit(1)
	}
}

// check runs one scenario. Whatever it fails with, a panic of the SDK included, is its line.
func check(name string, scenario func()) {
	defer func() {
		if told := recover(); told != nil {
			failed = true
			why := strings.ReplaceAll(fmt.Sprint(told), "\n", " ")
			fmt.Printf("FAILED %s: %s\n", name, why)
			return
		}
		fmt.Printf("ok %s\n", name)
	}()
	scenario()
}

// hastily runs a scenario with the client that repeats nothing.
func hastily(scenario func()) func() {
	return func() {
		patient := client
		client = hasty
		defer func() { client = patient }()
		scenario()
	}
}

func must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

func same(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(failure(fmt.Sprintf("%s: got %v, want %v", what, got, want)))
	}
}

func that(what string, holds bool) {
	if !holds {
		panic(failure(what))
	}
}

// refused holds an error to its status, code and text; an empty text is not looked at.
func refused(err error, status int, code, text string) {
	var told *ts.OtsError
	if !errors.As(err, &told) {
		panic(failure(fmt.Sprintf("not refused with %s but: %v", code, err)))
	}
	same("code", told.Code, code)
	same("status", told.HttpStatusCode, status)
	same("length of the request id", len(told.RequestId), 36)
	if text != "" {
		same("text", told.Message, text)
	}
}

func invalid(err error, text string) {
	refused(err, 400, "OTSParameterInvalid", text)
}

// table makes a table keyed pk1 STRING, pk2 INTEGER that keeps five versions of any age.
func table(stream *ts.StreamSpecification) string {
	meta := &ts.TableMeta{}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumn("pk2", ts.PrimaryKeyType_INTEGER)
	return tableOf(meta, stream)
}

func tableOf(meta *ts.TableMeta, stream *ts.StreamSpecification) string {
	made++
	meta.TableName = fmt.Sprintf("go_%d", made)
	option := ts.NewTableOption(-1, 5)
	option.DeviationCellVersionInSec = 1 << 33
	_, err := client.CreateTable(&ts.CreateTableRequest{
		TableMeta: meta, TableOption: option,
		ReservedThroughput: &ts.ReservedThroughput{}, StreamSpec: stream,
	})
	must(err)
	return meta.TableName
}

func drop(table string) {
	_, err := client.DeleteTable(&ts.DeleteTableRequest{TableName: table})
	must(err)
}

func key(pk1 any, pk2 any) *ts.PrimaryKey {
	pk := &ts.PrimaryKey{}
	pk.AddPrimaryKeyColumn("pk1", pk1)
	pk.AddPrimaryKeyColumn("pk2", pk2)
	return pk
}

func putting(table string, pk *ts.PrimaryKey, columns ...ts.AttributeColumn) *ts.PutRowChange {
	change := &ts.PutRowChange{TableName: table, PrimaryKey: pk, Columns: columns}
	change.SetCondition(ts.RowExistenceExpectation_IGNORE)
	return change
}

func put(table string, pk *ts.PrimaryKey, columns ...ts.AttributeColumn) *ts.PutRowResponse {
	told, err := sendPut(putting(table, pk, columns...))
	must(err)
	return told
}

func sendPut(change *ts.PutRowChange) (*ts.PutRowResponse, error) {
	return client.PutRow(&ts.PutRowRequest{PutRowChange: change})
}

func deleting(table string, pk *ts.PrimaryKey) *ts.DeleteRowChange {
	change := &ts.DeleteRowChange{TableName: table, PrimaryKey: pk}
	change.SetCondition(ts.RowExistenceExpectation_IGNORE)
	return change
}

func sendDelete(change *ts.DeleteRowChange) error {
	_, err := client.DeleteRow(&ts.DeleteRowRequest{DeleteRowChange: change})
	return err
}

func column(name string, value any) ts.AttributeColumn {
	return ts.AttributeColumn{ColumnName: name, Value: value}
}

func version(name string, value any, at int64) ts.AttributeColumn {
	return ts.AttributeColumn{ColumnName: name, Value: value, Timestamp: at}
}

func criteria(table string, pk *ts.PrimaryKey) *ts.SingleRowQueryCriteria {
	return &ts.SingleRowQueryCriteria{TableName: table, PrimaryKey: pk, MaxVersion: 1}
}

func get(query *ts.SingleRowQueryCriteria) *ts.GetRowResponse {
	told, err := fetch(query)
	must(err)
	return told
}

func fetch(query *ts.SingleRowQueryCriteria) (*ts.GetRowResponse, error) {
	return client.GetRow(&ts.GetRowRequest{SingleRowQueryCriteria: query})
}

// names returns the columns of an answer in its order.
func names(told *ts.GetRowResponse) []string {
	found := []string{}
	for _, cell := range told.Columns {
		found = append(found, cell.ColumnName)
	}
	return found
}

// read returns a row's newest values, nil where it is absent.
func read(table string, pk *ts.PrimaryKey) map[string]any {
	return values(get(criteria(table, pk)))
}

func values(told *ts.GetRowResponse) map[string]any {
	if len(told.PrimaryKey.PrimaryKeys) == 0 {
		return nil
	}
	found := map[string]any{}
	for _, cell := range told.Columns {
		if _, seen := found[cell.ColumnName]; !seen {
			found[cell.ColumnName] = cell.Value
		}
	}
	return found
}

func update(table string, pk *ts.PrimaryKey) *ts.UpdateRowChange {
	change := &ts.UpdateRowChange{TableName: table, PrimaryKey: pk}
	change.SetCondition(ts.RowExistenceExpectation_IGNORE)
	return change
}

func send(change *ts.UpdateRowChange) (*ts.UpdateRowResponse, error) {
	return client.UpdateRow(&ts.UpdateRowRequest{UpdateRowChange: change})
}
