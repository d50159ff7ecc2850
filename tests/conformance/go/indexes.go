package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

const caughtUpMax = 30 * time.Second

var kinds = []ts.IndexType{ts.IT_LOCAL_INDEX, ts.IT_GLOBAL_INDEX}

// checkIndexes holds a local index to its rows at once, a global one when it has caught up.
func checkIndexes() {
	check("index-describe", checkDescribedIndexes)
	check("index-rows", eachKind(checkIndexRows))
	check("index-row-by-key", eachKind(checkIndexRowByKey))
	check("index-batch", checkIndexBatch)
	check("index-batch-atomic", checkIndexBatchAtomic)
	check("index-transaction", checkIndexTransaction)
	check("index-transaction-read", checkIndexTransactionRead)
	check("index-base-data", eachKind(checkBaseData))
	check("index-later-writes", eachKind(checkLaterWrites))
	check("index-drop", eachKind(checkIndexDrop))
	check("index-table-drop", checkIndexTableDrop)
}

func eachKind(scenario func(kind ts.IndexType)) func() {
	return func() {
		for _, kind := range kinds {
			scenario(kind)
		}
	}
}

// indexedMeta is a table keyed pk1 STRING, pk2 INTEGER with defined columns n, s, b, d.
func indexedMeta() *ts.TableMeta {
	made++
	meta := &ts.TableMeta{TableName: fmt.Sprintf("go_%d", made)}
	meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumn("pk2", ts.PrimaryKeyType_INTEGER)
	meta.AddDefinedColumn("n", ts.DefinedColumn_INTEGER)
	meta.AddDefinedColumn("s", ts.DefinedColumn_STRING)
	meta.AddDefinedColumn("b", ts.DefinedColumn_BINARY)
	meta.AddDefinedColumn("d", ts.DefinedColumn_DOUBLE)
	return meta
}

func createIndexed(meta *ts.TableMeta, option *ts.TableOption, indexes ...*ts.IndexMeta) error {
	_, err := client.CreateTable(&ts.CreateTableRequest{TableMeta: meta, TableOption: option,
		ReservedThroughput: &ts.ReservedThroughput{}, IndexMetas: indexes})
	return err
}

func indexed(indexes ...*ts.IndexMeta) string {
	meta := indexedMeta()
	must(createIndexed(meta, ts.NewTableOption(-1, 1), indexes...))
	return meta.TableName
}

// index describes an index under a fresh name.
func index(kind ts.IndexType, key []string, columns ...string) *ts.IndexMeta {
	made++
	return &ts.IndexMeta{IndexName: fmt.Sprintf("go_index_%d", made), Primarykey: key,
		DefinedColumns: columns, IndexType: kind}
}

// byN describes an index by the column n that keeps s.
func byN(kind ts.IndexType) *ts.IndexMeta {
	if kind == ts.IT_LOCAL_INDEX {
		return index(kind, []string{"pk1", "n"}, "s")
	}
	return index(kind, []string{"n"}, "s")
}

func addIndex(table string, index *ts.IndexMeta, base bool) error {
	_, err := client.CreateIndex(&ts.CreateIndexRequest{
		MainTableName: table, IndexMeta: index, IncludeBaseData: base})
	return err
}

func removeIndex(table, index string) error {
	_, err := client.DeleteIndex(&ts.DeleteIndexRequest{MainTableName: table, IndexName: index})
	return err
}

func shownIndexes(table string) []*ts.IndexMeta {
	told, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: table})
	must(err)
	return told.IndexMetas
}

func wholeKey(index *ts.IndexMeta) []string {
	names := slices.Clone(index.Primarykey)
	for _, name := range []string{"pk1", "pk2"} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// entryKey is a key of an index by n: pk1, n, pk2 in a local one, else n, pk1, pk2.
func entryKey(index *ts.IndexMeta, pk1 string, n, pk2 int) *ts.PrimaryKey {
	pk := &ts.PrimaryKey{}
	for _, name := range wholeKey(index) {
		value := map[string]any{"pk1": pk1, "n": int64(n), "pk2": int64(pk2)}[name]
		pk.AddPrimaryKeyColumn(name, value)
	}
	return pk
}

func shownRow(pk *ts.PrimaryKey, columns map[string]any) string {
	words := []string{}
	for _, column := range pk.PrimaryKeys {
		words = append(words, fmt.Sprintf("%s=%v", column.ColumnName, column.Value))
	}
	return strings.Join(append(words, fmt.Sprint(columns)), " ")
}

// entry is a row as an index by n has it; without an s that is empty.
func entry(index *ts.IndexMeta, pk1 string, n, pk2 int, s string) string {
	columns := map[string]any{}
	if s != "" {
		columns["s"] = s
	}
	return shownRow(entryKey(index, pk1, n, pk2), columns)
}

func wholeIndex(index *ts.IndexMeta, direction ts.Direction, limit int32) *ts.RangeRowQueryCriteria {
	low, high := &ts.PrimaryKey{}, &ts.PrimaryKey{}
	for _, name := range wholeKey(index) {
		low.AddPrimaryKeyColumnWithMinValue(name)
		high.AddPrimaryKeyColumnWithMaxValue(name)
	}
	if direction == ts.BACKWARD {
		low, high = high, low
	}
	return &ts.RangeRowQueryCriteria{TableName: index.IndexName, StartPrimaryKey: low,
		EndPrimaryKey: high, MaxVersion: 1, Direction: direction, Limit: limit}
}

func fetchRange(query *ts.RangeRowQueryCriteria) (*ts.GetRangeResponse, error) {
	return client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: query})
}

// indexRange reads an index page by page.
func indexRange(index *ts.IndexMeta, direction ts.Direction, limit int32) []string {
	query := wholeIndex(index, direction, limit)
	found := []string{}
	for query.StartPrimaryKey != nil {
		told, err := fetchRange(query)
		must(err)
		for _, row := range told.Rows {
			columns := map[string]any{}
			for _, cell := range row.Columns {
				columns[cell.ColumnName] = cell.Value
			}
			found = append(found, shownRow(row.PrimaryKey, columns))
		}
		query.StartPrimaryKey = told.NextStartPrimaryKey
	}
	return found
}

// caughtUp waits until something holds that an index has to catch up with.
func caughtUp(what string, holds func() bool) {
	for until := time.Now().Add(caughtUpMax); !holds(); time.Sleep(20 * time.Millisecond) {
		that(fmt.Sprintf("%s within %s", what, caughtUpMax), time.Now().Before(until))
	}
}

func holds(index *ts.IndexMeta, wanted ...string) {
	wanted = append([]string{}, wanted...)
	if index.IndexType == ts.IT_GLOBAL_INDEX {
		caughtUp(fmt.Sprint(wanted), func() bool {
			return slices.Equal(indexRange(index, ts.FORWARD, 5000), wanted)
		})
	}
	same("forward", indexRange(index, ts.FORWARD, 2), wanted)
	slices.Reverse(wanted)
	same("backward", indexRange(index, ts.BACKWARD, 2), wanted)
}

func checkDescribedIndexes() {
	local := index(ts.IT_LOCAL_INDEX, []string{"pk1", "n"}, "s", "d")
	global := index(ts.IT_GLOBAL_INDEX, []string{"s", "n"})
	name := indexed(local, global)
	defer drop(name)
	later := index(ts.IT_GLOBAL_INDEX, []string{"b"}, "n")
	must(addIndex(name, later, false))
	found := []ts.IndexMeta{}
	for _, told := range shownIndexes(name) {
		same("phase", *told.IndexSyncPhase, ts.SyncPhase_INCR)
		told.IndexSyncPhase = nil
		found = append(found, *told)
	}
	same("indexes", found, []ts.IndexMeta{
		{IndexName: local.IndexName, Primarykey: []string{"pk1", "n"},
			DefinedColumns: []string{"s", "d"}, IndexType: ts.IT_LOCAL_INDEX},
		{IndexName: global.IndexName, Primarykey: []string{"s", "n"}},
		{IndexName: later.IndexName, Primarykey: []string{"b"},
			DefinedColumns: []string{"n"}},
	})
	alone, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: global.IndexName})
	must(err)
	columns := []string{}
	for _, column := range alone.TableMeta.SchemaEntry {
		columns = append(columns, fmt.Sprint(*column.Name, " ", *column.Type))
	}
	same("as a table", columns, []string{
		fmt.Sprint("s ", ts.PrimaryKeyType_STRING), fmt.Sprint("n ", ts.PrimaryKeyType_INTEGER),
		fmt.Sprint("pk1 ", ts.PrimaryKeyType_STRING), fmt.Sprint("pk2 ", ts.PrimaryKeyType_INTEGER)})
	same("versions", alone.TableOption.MaxVersion, 1)
	listed, err := client.ListTable()
	must(err)
	that("the table is listed", slices.Contains(listed.TableNames, name))
	that("its indexes are not", !slices.Contains(listed.TableNames, local.IndexName))
}

// checkIndexRows: an index's rows change and go with the table's.
func checkIndexRows(kind ts.IndexType) {
	index := byN(kind)
	name := indexed(index)
	defer drop(name)
	row := func(pk2 int64) *ts.PrimaryKey { return key("a", pk2) }
	change := func(pk2 int64, with func(*ts.UpdateRowChange)) {
		changed := update(name, row(pk2))
		with(changed)
		_, err := send(changed)
		must(err)
	}
	put(name, row(1), column("n", int64(20)), column("s", "x"), column("other", int64(1)))
	put(name, row(2), column("n", int64(10)))
	put(name, row(3), column("s", "without n"))
	holds(index, entry(index, "a", 10, 2, ""), entry(index, "a", 20, 1, "x"))
	change(1, func(to *ts.UpdateRowChange) { to.PutColumn("s", "y") })
	change(2, func(to *ts.UpdateRowChange) { to.IncrementColumn("n", 15) })
	change(3, func(to *ts.UpdateRowChange) { to.PutColumn("n", int64(30)) })
	holds(index, entry(index, "a", 20, 1, "y"), entry(index, "a", 25, 2, ""),
		entry(index, "a", 30, 3, "without n"))
	change(3, func(to *ts.UpdateRowChange) { to.DeleteColumn("n") })
	must(sendDelete(deleting(name, row(1))))
	put(name, row(4), column("n", int64(-5)))
	holds(index, entry(index, "a", -5, 4, ""), entry(index, "a", 25, 2, ""))
}

func checkIndexRowByKey(kind ts.IndexType) {
	index := byN(kind)
	index.AddDefinedColumn("d")
	name := indexed(index)
	defer drop(name)
	put(name, key("a", int64(1)), column("n", int64(7)), column("s", "Grüße"), column("d", 0.5))
	found, cells := entryKey(index, "a", 7, 1), map[string]any{"s": "Grüße", "d": 0.5}
	if kind == ts.IT_GLOBAL_INDEX {
		caughtUp("the row", func() bool { return read(index.IndexName, found) != nil })
	}
	same("the row", read(index.IndexName, found), cells)
	same("another", read(index.IndexName, entryKey(index, "a", 7, 2)), map[string]any(nil))
	some := criteria(index.IndexName, found)
	some.AddColumnToGet("d")
	same("chosen columns", values(get(some)), map[string]any{"d": 0.5})
	wanted := &ts.MultiRowQueryCriteria{TableName: index.IndexName, MaxVersion: 1}
	wanted.AddRow(found)
	wanted.AddRow(entryKey(index, "b", 7, 1))
	request := &ts.BatchGetRowRequest{}
	request.MultiRowQueryCriteria = append(request.MultiRowQueryCriteria, wanted)
	told, err := client.BatchGetRow(request)
	must(err)
	rows := told.TableToRowsResult[index.IndexName]
	same("in a batch", len(rows[0].Columns), 2)
	same("another in a batch", len(rows[1].PrimaryKey.PrimaryKeys), 0)
}

// checkIndexBatch: rows of a batch that are refused leave no trace in an index.
func checkIndexBatch() {
	index := byN(ts.IT_LOCAL_INDEX)
	name := indexed(index)
	defer drop(name)
	put(name, key("a", int64(3)), column("n", int64(3)))
	strict := putting(name, key("a", int64(9)), column("n", int64(9)))
	strict.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
	change := update(name, key("a", int64(2)))
	change.PutColumn("n", int64(1))
	change.PutColumn("s", "x")
	rows := batch(false, putting(name, key("a", int64(1)), column("n", int64(2))), strict, change,
		deleting(name, key("a", int64(3))), putting(name, key("b", int64(1)), column("n", int64(0))),
		putting(name, key("b", int64(2)), column("n", "no number")))[name]
	for n, succeeds := range []bool{true, false, true, true, true, false} {
		same(fmt.Sprint("row ", n), rows[n].IsSucceed, succeeds)
	}
	same("why", rows[5].Error.Message,
		"Invalid column type for column n expect VT_INTEGER actual VT_STRING")
	holds(index, entry(index, "a", 1, 2, "x"), entry(index, "a", 2, 1, ""),
		entry(index, "b", 0, 1, ""))
}

func checkIndexBatchAtomic() {
	index := byN(ts.IT_LOCAL_INDEX)
	name := indexed(index)
	defer drop(name)
	put(name, key("p", int64(3)), column("n", int64(3)))
	strict := putting(name, key("p", int64(9)), column("n", int64(9)))
	strict.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
	batch(true, putting(name, key("p", int64(1)), column("n", int64(1))), strict)
	holds(index, entry(index, "p", 3, 3, ""))
	batch(true, putting(name, key("p", int64(1)), column("n", int64(5))),
		deleting(name, key("p", int64(3))), putting(name, key("p", int64(2)), column("n", int64(4))))
	holds(index, entry(index, "p", 4, 2, ""), entry(index, "p", 5, 1, ""))
}

// checkIndexTransaction: an index learns of a transaction's writes with its commit, never of an abort's.
func checkIndexTransaction() {
	local, global := byN(ts.IT_LOCAL_INDEX), byN(ts.IT_GLOBAL_INDEX)
	name := indexed(local, global)
	defer drop(name)
	put(name, key("p", int64(1)), column("n", int64(1)))
	id := within(name, "p")
	added := putting(name, key("p", int64(2)), column("n", int64(5)), column("s", "new"))
	added.TransactionId = id
	_, err := sendPut(added)
	must(err)
	gone := deleting(name, key("p", int64(1)))
	gone.TransactionId = id
	must(sendDelete(gone))
	for _, index := range []*ts.IndexMeta{local, global} {
		holds(index, entry(index, "p", 1, 1, ""))
	}
	must(commit(id))
	aborted := within(name, "p")
	gone = deleting(name, key("p", int64(2)))
	gone.TransactionId = aborted
	must(sendDelete(gone))
	for _, index := range []*ts.IndexMeta{local, global} {
		holds(index, entry(index, "p", 5, 2, "new"))
	}
	must(abort(aborted))
	holds(local, entry(local, "p", 5, 2, "new"))
}

func checkIndexTransactionRead() {
	index := byN(ts.IT_LOCAL_INDEX)
	name := indexed(index)
	defer drop(name)
	id := within(name, "p")
	one := criteria(index.IndexName, entryKey(index, "p", 1, 1))
	one.TransactionId = id
	_, err := fetch(one)
	invalid(err, "Disallow read local index")
	many := wholeIndex(index, ts.FORWARD, 10)
	many.StartPrimaryKey.PrimaryKeys[0] = &ts.PrimaryKeyColumn{ColumnName: "pk1", Value: "p"}
	many.EndPrimaryKey.PrimaryKeys[0] = &ts.PrimaryKeyColumn{ColumnName: "pk1", Value: "p"}
	many.TransactionId = id
	_, err = fetchRange(many)
	invalid(err, "Disallow read local index")
	must(abort(id))
	holds(index)
}

// checkBaseData: once the phase says so, an index has every row that there was before.
func checkBaseData(kind ts.IndexType) {
	name := indexed()
	defer drop(name)
	index := byN(kind)
	wanted := []string{}
	for n := 0; n < 600; n += 200 {
		changes := []ts.RowChange{}
		for m := n; m < n+200; m++ {
			changes = append(changes, putting(name, key("a", int64(m)), column("n", int64(600-m))))
			wanted = append(wanted, entry(index, "a", 600-m, m, ""))
		}
		batch(false, changes...)
	}
	must(addIndex(name, index, true))
	caughtUp("all rows", func() bool {
		if *shownIndexes(name)[0].IndexSyncPhase == ts.SyncPhase_INCR {
			return true
		}
		if kind == ts.IT_LOCAL_INDEX {
			_, err := fetchRange(wholeIndex(index, ts.FORWARD, 1))
			if err != nil {
				invalid(err, "Disallow read local index")
			}
		}
		return false
	})
	same("backward", indexRange(index, ts.BACKWARD, 5000), wanted)
	slices.Reverse(wanted)
	same("forward", indexRange(index, ts.FORWARD, 250), wanted)
}

func checkLaterWrites(kind ts.IndexType) {
	name := indexed()
	defer drop(name)
	for n := int64(0); n < 4; n++ {
		put(name, key("a", n), column("n", n))
	}
	index := byN(kind)
	must(addIndex(name, index, false))
	holds(index)
	put(name, key("a", int64(1)), column("n", int64(10)))
	change := update(name, key("a", int64(2)))
	change.PutColumn("other", "is written")
	_, err := send(change)
	must(err)
	must(sendDelete(deleting(name, key("a", int64(0)))))
	holds(index, entry(index, "a", 2, 2, ""), entry(index, "a", 10, 1, ""))
}

func noTable(err error) {
	refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
}

func checkIndexDrop(kind ts.IndexType) {
	index := byN(kind)
	name := indexed(index)
	defer drop(name)
	put(name, key("a", int64(1)), column("n", int64(1)))
	holds(index, entry(index, "a", 1, 1, ""))
	must(removeIndex(name, index.IndexName))
	same("indexes", len(shownIndexes(name)), 0)
	_, err := fetchRange(wholeIndex(index, ts.FORWARD, 10))
	noTable(err)
	_, err = fetch(criteria(index.IndexName, entryKey(index, "a", 1, 1)))
	noTable(err)
	_, err = client.DescribeTable(&ts.DescribeTableRequest{TableName: index.IndexName})
	noTable(err)
	noTable(removeIndex(name, index.IndexName))
	same("the table's row", read(name, key("a", int64(1))), map[string]any{"n": int64(1)})
	must(addIndex(name, index, false))
	holds(index)
	put(name, key("a", int64(1)), column("n", int64(2)))
	holds(index, entry(index, "a", 2, 1, ""))
}

func checkIndexTableDrop() {
	local, global := byN(ts.IT_LOCAL_INDEX), byN(ts.IT_GLOBAL_INDEX)
	meta := indexedMeta()
	must(createIndexed(meta, ts.NewTableOption(-1, 1), local, global))
	put(meta.TableName, key("a", int64(1)), column("n", int64(1)))
	holds(global, entry(global, "a", 1, 1, ""))
	drop(meta.TableName)
	for _, index := range []*ts.IndexMeta{local, global} {
		_, err := fetchRange(wholeIndex(index, ts.FORWARD, 10))
		noTable(err)
	}
	must(createIndexed(meta, ts.NewTableOption(-1, 1), local, global))
	holds(local)
	holds(global)
	drop(meta.TableName)
}
