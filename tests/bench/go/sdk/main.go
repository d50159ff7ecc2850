// Command sdk drives a Table Store server with the official Go SDK, see package load. The server is
// named by ROWTIDE_ENDPOINT, ROWTIDE_INSTANCE, ROWTIDE_KEY_ID and ROWTIDE_KEY_SECRET.
package main

import (
	"fmt"
	"os"
	"time"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"rowtide/bench/load"
)

var (
	client = newClient()
	names  [10]string
)

func main() {
	for i := range names {
		names[i] = fmt.Sprintf("text%d", i)
	}
	load.Serve(do)
}

func newClient() *ts.TableStoreClient {
	config := ts.NewDefaultTableStoreConfig()
	config.RetryTimes = 0 // A failure ends the measurement: a repeated call would hide it.
	return ts.NewClientWithConfig(os.Getenv("ROWTIDE_ENDPOINT"), os.Getenv("ROWTIDE_INSTANCE"),
		os.Getenv("ROWTIDE_KEY_ID"), os.Getenv("ROWTIDE_KEY_SECRET"), "", config)
}

func do(command load.Command) (load.Result, error) {
	switch command.Do {
	case "create":
		return load.Result{}, create(command.Table)
	case "put":
		return load.Loop(command.Connections, command.Rows, 1, func(_, number int) error {
			request := &ts.PutRowRequest{PutRowChange: change(command.Table, command.First+number)}
			_, err := client.PutRow(request)
			return err
		})
	case "get":
		return load.Loop(command.Connections, command.Rows, 1, func(_, number int) error {
			return get(command.Table, command.First+number)
		})
	case "batch":
		calls := command.Rows / load.BatchRows
		return load.Loop(command.Connections, calls, load.BatchRows, func(_, number int) error {
			return batch(command.Table, command.First+number*load.BatchRows)
		})
	case "range":
		return scan(command)
	case "drain":
		return drain(command)
	}
	return load.Result{}, fmt.Errorf("unknown command: %q", command.Do)
}

func create(table string) error {
	meta := &ts.TableMeta{TableName: table}
	meta.AddPrimaryKeyColumn("id", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumn("n", ts.PrimaryKeyType_INTEGER)
	_, err := client.CreateTable(&ts.CreateTableRequest{
		TableMeta: meta, TableOption: ts.NewTableOption(-1, 1),
		ReservedThroughput: &ts.ReservedThroughput{},
		StreamSpec:         &ts.StreamSpecification{EnableStream: true, ExpirationTime: 24},
	})
	return err
}

func key(number int) *ts.PrimaryKey {
	pk := &ts.PrimaryKey{}
	pk.AddPrimaryKeyColumn("id", load.ID(number))
	pk.AddPrimaryKeyColumn("n", int64(number))
	return pk
}

func change(table string, number int) *ts.PutRowChange {
	row := load.RowOf(number)
	change := &ts.PutRowChange{TableName: table, PrimaryKey: key(number)}
	for i, text := range row.Texts {
		change.AddColumn(names[i], text)
	}
	change.AddColumn("count", row.Count)
	change.AddColumn("total", row.Total)
	change.SetCondition(ts.RowExistenceExpectation_IGNORE)
	return change
}

func get(table string, number int) error {
	criteria := &ts.SingleRowQueryCriteria{TableName: table, PrimaryKey: key(number), MaxVersion: 1}
	told, err := client.GetRow(&ts.GetRowRequest{SingleRowQueryCriteria: criteria})
	if err == nil && len(told.Columns) != len(names)+2 {
		err = fmt.Errorf("row %d has %d columns", number, len(told.Columns))
	}
	return err
}

func batch(table string, first int) error {
	request := &ts.BatchWriteRowRequest{}
	for number := first; number < first+load.BatchRows; number++ {
		request.AddRowChange(change(table, number))
	}
	told, err := client.BatchWriteRow(request)
	if err != nil {
		return err
	}
	for _, row := range told.TableToRowsResult[table] {
		if !row.IsSucceed {
			return fmt.Errorf("a row of a batch: %s: %s", row.Error.Code, row.Error.Message)
		}
	}
	return nil
}

// scan reads the whole table with one client, page after page, Repeat times.
func scan(command load.Command) (load.Result, error) {
	var times []time.Duration
	began := time.Now()
	for n := 0; n < command.Repeat; n++ {
		start, end := &ts.PrimaryKey{}, &ts.PrimaryKey{}
		for _, name := range []string{"id", "n"} {
			start.AddPrimaryKeyColumnWithMinValue(name)
			end.AddPrimaryKeyColumnWithMaxValue(name)
		}
		found := 0
		for start != nil {
			sent := time.Now()
			page, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: &ts.RangeRowQueryCriteria{
				TableName: command.Table, StartPrimaryKey: start, EndPrimaryKey: end,
				Direction: ts.FORWARD, MaxVersion: 1}})
			if err != nil {
				return load.Result{}, err
			}
			times = append(times, time.Since(sent))
			found += len(page.Rows)
			start = page.NextStartPrimaryKey
		}
		if found != command.Rows {
			return load.Result{}, fmt.Errorf("a scan found %d rows of %d", found, command.Rows)
		}
	}
	return load.Summary(times, command.Rows*command.Repeat, time.Since(began)), nil
}

// drain reads the one shard of a table's stream from its oldest record on.
func drain(command load.Command) (load.Result, error) {
	streams, err := client.ListStream(&ts.ListStreamRequest{TableName: &command.Table})
	if err != nil {
		return load.Result{}, err
	}
	id := streams.Streams[0].Id
	stream, err := client.DescribeStream(&ts.DescribeStreamRequest{StreamId: id})
	if err != nil {
		return load.Result{}, err
	}
	told, err := client.GetShardIterator(
		&ts.GetShardIteratorRequest{StreamId: id, ShardId: stream.Shards[0].SelfShard})
	if err != nil {
		return load.Result{}, err
	}
	var times []time.Duration
	found, iterator, began := 0, told.ShardIterator, time.Now()
	for found < command.Rows && iterator != nil {
		sent := time.Now()
		page, err := client.GetStreamRecord(&ts.GetStreamRecordRequest{ShardIterator: iterator})
		if err != nil {
			return load.Result{}, err
		}
		times = append(times, time.Since(sent))
		found += len(page.Records)
		iterator = page.NextShardIterator
	}
	return load.Summary(times, found, time.Since(began)), nil
}
