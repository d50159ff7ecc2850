package main

import (
	"time"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// follower reads the one shard of a table's stream.
type follower struct {
	id       *ts.StreamId
	shard    *ts.ShardId
	iterator *ts.ShardIterator
}

func follow(name string) *follower {
	told, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
	must(err)
	that("enabled", told.StreamDetails.EnableStream)
	stream, err := client.DescribeStream(&ts.DescribeStreamRequest{StreamId: told.StreamDetails.StreamId})
	must(err)
	same("shards", len(stream.Shards), 1)
	found := &follower{id: told.StreamDetails.StreamId, shard: stream.Shards[0].SelfShard}
	found.seek(nil)
	return found
}

func (f *follower) seek(timestamp *int64) {
	told, err := client.GetShardIterator(&ts.GetShardIteratorRequest{
		StreamId: f.id, ShardId: f.shard, Timestamp: timestamp})
	must(err)
	that("no token", told.Token == nil)
	f.iterator = told.ShardIterator
}

func (f *follower) read(limit int32) []*ts.StreamRecord {
	request := &ts.GetStreamRecordRequest{ShardIterator: f.iterator}
	if limit > 0 {
		request.Limit = &limit
	}
	told, err := client.GetStreamRecord(request)
	must(err)
	that("open", told.NextShardIterator != nil)
	f.iterator = told.NextShardIterator
	return told.Records
}

func streamed(columns ...string) string {
	return table(&ts.StreamSpecification{EnableStream: true, ExpirationTime: 24,
		OriginColumnsToGet: columns})
}

func checkStreams() {
	check("stream-describe", func() {
		name := streamed("b", "a")
		defer drop(name)
		listed, err := client.ListStream(&ts.ListStreamRequest{TableName: &name})
		must(err)
		same("streams", len(listed.Streams), 1)
		told, err := client.DescribeStream(&ts.DescribeStreamRequest{StreamId: listed.Streams[0].Id})
		must(err)
		same("id", *told.StreamId, *listed.Streams[0].Id)
		same("table", *told.TableName, name)
		same("hours", told.ExpirationTime, int32(24))
		same("status", told.Status, ts.SS_Active)
		that("no more shards", told.NextShardId == nil && len(told.Shards) == 1)
		that("no parents", told.Shards[0].FatherShard == nil && told.Shards[0].MotherShard == nil)
		that("time in us", time.Since(time.UnixMicro(told.CreationTime)) < time.Minute)
		details, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
		must(err)
		same("columns", details.StreamDetails.OriginColumnsToGet, []string{"b", "a"})
	})
	check("stream-records", checkRecords)
	check("stream-empty-read", func() {
		name := streamed()
		defer drop(name)
		f := follow(name)
		for n := int64(0); n < 5; n++ {
			put(name, key("a", n), column("c", n))
			same("one record", len(f.read(0)), 1)
			before := *f.iterator
			same("none", len(f.read(0)), 0)
			same("the same iterator", *f.iterator, before)
		}
	})
	check("stream-pages", func() {
		name := streamed()
		defer drop(name)
		request := &ts.BatchWriteRowRequest{}
		for n := int64(0); n < 100; n++ {
			change := update(name, key("a", n))
			change.PutColumn("n", n)
			request.AddRowChange(change)
		}
		_, err := client.BatchWriteRow(request)
		must(err)
		for _, limit := range []int32{1, 7, 100, 1000} {
			f, next := follow(name), int64(0)
			for page := f.read(limit); len(page) > 0; page = f.read(limit) {
				that("limit", len(page) <= int(limit))
				for _, record := range page {
					same("order", record.PrimaryKey.PrimaryKeys[1].Value, next)
					next++
				}
			}
			same("records", next, int64(100))
		}
	})
	check("stream-from-time", func() {
		name := streamed()
		defer drop(name)
		f := follow(name)
		for n := int64(0); n < 10; n++ {
			put(name, key("a", n))
		}
		records := f.read(0)
		at := records[4].Info.Timestamp
		f.seek(&at)
		same("from the fifth", len(f.read(0)), 6)
		zero := int64(0)
		f.seek(&zero)
		same("from the start", len(f.read(0)), 10)
	})
	check("stream-original", func() {
		name := streamed("a")
		defer drop(name)
		f := follow(name)
		row := key("a", int64(1))
		put(name, row, column("a", int64(1)), column("b", int64(1)))
		put(name, row, column("a", int64(2)))
		records := f.read(0)
		same("before the first", len(records[0].OriginColumns), 0)
		same("before the second", len(records[1].OriginColumns), 1)
		same("value", records[1].OriginColumns[0].Value, int64(1))
	})
	check("stream-original-kinds", checkOriginals)
	check("stream-deletes", checkDeletes)
	check("stream-increments", checkIncrements)
	check("stream-values", checkStreamValues)
	check("stream-failed-writes", checkFailedWrites)
	check("stream-errors", checkStreamErrors)
	check("stream-disable", func() {
		name := streamed()
		defer drop(name)
		f := follow(name)
		_, err := client.UpdateTable(&ts.UpdateTableRequest{TableName: name,
			StreamSpec: &ts.StreamSpecification{EnableStream: false}})
		must(err)
		_, err = client.GetStreamRecord(&ts.GetStreamRecordRequest{ShardIterator: f.iterator})
		refused(err, 404, "OTSTrimmedDataAccess",
			"Requested stream data is already trimmed or does not exist.")
		told, err := client.UpdateTable(&ts.UpdateTableRequest{TableName: name,
			StreamSpec: &ts.StreamSpecification{EnableStream: true, ExpirationTime: 1}})
		must(err)
		that("another stream", *told.StreamDetails.StreamId != *f.id)
		same("hours", told.StreamDetails.ExpirationTime, int32(1))
		again := follow(name)
		put(name, key("a", int64(1)))
		same("records", len(again.read(0)), 1)
	})
}

func checkRecords() {
	name := streamed()
	defer drop(name)
	f := follow(name)
	row := key("a", int64(1))
	put(name, row, version("c", "v", 5))
	change := update(name, row)
	change.PutColumnWithTimestamp("colToUpdate", int64(1), 9)
	change.DeleteColumnWithTimestamp("colToDel", 5)
	change.DeleteColumn("colToDelAll")
	_, err := send(change)
	must(err)
	change = update(name, row)
	change.IncrementColumn("n", 42)
	_, err = send(change)
	must(err)
	gone := &ts.DeleteRowChange{TableName: name, PrimaryKey: row}
	gone.SetCondition(ts.RowExistenceExpectation_IGNORE)
	_, err = client.DeleteRow(&ts.DeleteRowRequest{DeleteRowChange: gone})
	must(err)
	records := f.read(0)
	kinds := []ts.ActionType{}
	for n, record := range records {
		kinds = append(kinds, record.Type)
		same("key", record.PrimaryKey.PrimaryKeys[1].Value, int64(1))
		that("increases", n == 0 || record.Info.Timestamp > records[n-1].Info.Timestamp)
	}
	same("kinds", kinds, []ts.ActionType{ts.AT_Put, ts.AT_Update, ts.AT_Update, ts.AT_Delete})
	first := records[0].Columns[0]
	same("put", []any{*first.Name, first.Value, *first.Timestamp}, []any{"c", "v", int64(5)})
	forms := []ts.RecordColumnType{}
	for _, cell := range records[1].Columns {
		forms = append(forms, cell.Type)
	}
	same("update", forms, []ts.RecordColumnType{ts.RCT_DeleteOneVersion, ts.RCT_DeleteAllVersions,
		ts.RCT_Put})
	same("increment", records[2].Columns[0].Value, int64(42))
	same("delete", len(records[3].Columns), 0)
}
