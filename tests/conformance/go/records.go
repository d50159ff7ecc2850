package main

import (
	"fmt"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// shown returns a record's cells as text: name, form, value and version.
func shown(cells []*ts.RecordColumn) []string {
	found := []string{}
	for _, cell := range cells {
		switch cell.Type {
		case ts.RCT_Put:
			found = append(found, fmt.Sprintf("%s=%v@%d", *cell.Name, cell.Value, *cell.Timestamp))
		case ts.RCT_DeleteOneVersion:
			found = append(found, fmt.Sprintf("%s-@%d", *cell.Name, *cell.Timestamp))
		case ts.RCT_DeleteAllVersions:
			found = append(found, *cell.Name+"-")
		}
	}
	return found
}

// checkOriginals: each kind of change shows the named columns as they were before it.
func checkOriginals() {
	name := streamed("a", "n")
	defer drop(name)
	f, row := follow(name), key("p", int64(1))
	put(name, row, version("a", "one", 1), version("b", "one", 1))
	change := update(name, row)
	change.PutColumnWithTimestamp("a", "two", 2)
	_, err := send(change)
	must(err)
	change = update(name, row)
	change.IncrementColumn("n", 5)
	_, err = send(change)
	must(err)
	change = update(name, row)
	change.DeleteColumn("a")
	change.PutColumnWithTimestamp("b", "two", 2)
	_, err = send(change)
	must(err)
	must(sendDelete(deleting(name, row)))
	records := f.read(0)
	same("records", len(records), 5)
	same("before the put", shown(records[0].OriginColumns), []string{})
	same("before the update", shown(records[1].OriginColumns), []string{"a=one@1"})
	same("before the increment", shown(records[2].OriginColumns), []string{"a=two@2"})
	counted := shown(records[2].Columns)[0]
	same("before the deleted column", shown(records[3].OriginColumns), []string{"a=two@2", counted})
	same("the change itself", shown(records[3].Columns), []string{"a-", "b=two@2"})
	same("before the delete", shown(records[4].OriginColumns), []string{counted})
	same("the delete itself", shown(records[4].Columns), []string{})
}

func checkDeletes() {
	name := streamed()
	defer drop(name)
	f, row := follow(name), key("p", int64(1))
	for at := int64(1); at < 4; at++ {
		change := update(name, row)
		change.PutColumnWithTimestamp("c", at, at)
		_, err := send(change)
		must(err)
	}
	change := update(name, row)
	change.DeleteColumnWithTimestamp("c", 2)
	change.DeleteColumnWithTimestamp("d", 7)
	change.DeleteColumn("e")
	_, err := send(change)
	must(err)
	query := criteria(name, row)
	query.MaxVersion = 5
	at := []int64{}
	for _, cell := range get(query).Columns {
		at = append(at, cell.Timestamp)
	}
	same("left", at, []int64{3, 1})
	records := f.read(0)
	same("kind", records[3].Type, ts.AT_Update)
	same("cells", shown(records[3].Columns), []string{"c-@2", "d-@7", "e-"})
}

// checkIncrements: a record shows what a counter came to, at the version it was given.
func checkIncrements() {
	name := streamed()
	defer drop(name)
	f, row := follow(name), key("p", int64(1))
	for _, step := range []int64{40, 2, -50} {
		change := update(name, row)
		change.IncrementColumn("n", step)
		change.SetReturnIncrementValue()
		change.AppendIncrementColumnToReturn("n")
		told, err := send(change)
		must(err)
		record := f.read(0)[0]
		same("kind", record.Type, ts.AT_Update)
		same("result", shown(record.Columns), []string{
			fmt.Sprintf("n=%v@%d", told.Columns[0].Value, told.Columns[0].Timestamp)})
	}
	same("row", read(name, row), map[string]any{"n": int64(-8)})
}

// checkStreamValues: every value comes through the stream as through a read.
func checkStreamValues() {
	name := streamed()
	defer drop(name)
	f, row := follow(name), key("", int64(1))
	cells := []ts.AttributeColumn{}
	for name, value := range everyValue {
		cells = append(cells, column(name, value))
	}
	put(name, row, cells...)
	record, stored := f.read(0)[0], get(criteria(name, row))
	same("key", record.PrimaryKey.PrimaryKeys[0].Value, "")
	found := map[string]any{}
	for n, cell := range record.Columns {
		found[*cell.Name] = cell.Value
		same("in the row's order", *cell.Name, stored.Columns[n].ColumnName)
		same("version", *cell.Timestamp, stored.Columns[n].Timestamp)
	}
	same("values", found, everyValue)
}

// checkFailedWrites: what is refused leaves no record; a batch leaves one per row that was written.
func checkFailedWrites() {
	name := streamed()
	defer drop(name)
	f := follow(name)
	strict := putting(name, key("p", int64(1)), column("c", int64(1)))
	strict.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
	_, err := sendPut(strict)
	refused(err, 403, "OTSConditionCheckFail", "Condition check failed.")
	batch(true, putting(name, key("p", int64(2))), strict)
	same("none", len(f.read(0)), 0)
	batch(false, putting(name, key("p", int64(2))), strict, putting(name, key("p", int64(3))))
	batch(true, putting(name, key("q", int64(4))), putting(name, key("q", int64(5))))
	numbers := []any{}
	for _, record := range f.read(0) {
		numbers = append(numbers, record.PrimaryKey.PrimaryKeys[1].Value)
	}
	same("records", numbers, []any{int64(2), int64(3), int64(4), int64(5)})
}

func checkStreamErrors() {
	name := streamed()
	defer drop(name)
	f, none, wrong := follow(name), "absent", ts.StreamId("absent_1")
	listed, err := client.ListStream(&ts.ListStreamRequest{TableName: &none})
	must(err)
	same("streams of no table", len(listed.Streams), 0)
	_, err = client.DescribeStream(&ts.DescribeStreamRequest{StreamId: &wrong})
	refused(err, 404, "OTSObjectNotExist", "")
	shard := ts.ShardId("absent")
	_, err = client.GetShardIterator(&ts.GetShardIteratorRequest{StreamId: f.id, ShardId: &shard})
	refused(err, 404, "OTSObjectNotExist", "")
	iterator := ts.ShardIterator("no iterator")
	_, err = client.GetStreamRecord(&ts.GetStreamRecordRequest{ShardIterator: &iterator})
	refused(err, 400, "OTSParameterInvalid", "")
	limit := int32(0)
	_, err = client.GetStreamRecord(&ts.GetStreamRecordRequest{ShardIterator: f.iterator, Limit: &limit})
	refused(err, 400, "OTSParameterInvalid", "")
	_, err = client.UpdateTable(&ts.UpdateTableRequest{TableName: name,
		StreamSpec: &ts.StreamSpecification{EnableStream: true, ExpirationTime: 169}})
	refused(err, 400, "OTSParameterInvalid", "")
}
