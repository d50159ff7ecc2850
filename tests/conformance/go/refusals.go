package main

import (
	"fmt"
	"math"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkRefusals() {
	name := table(nil)
	defer drop(name)
	check("key-errors", func() { checkKeyErrors(name) })
	check("column-name-errors", func() { checkColumnNames(name) })
	check("read-errors", func() { checkReadErrors(name) })
	check("range-errors", func() { checkRangeErrors(name) })
	check("write-errors", func() { checkWriteErrors(name) })
	check("version-errors", func() { checkVersionErrors(name) })
	check("update-refused", checkUpdateRefused)
}

func pkOf(parts ...any) *ts.PrimaryKey {
	pk := &ts.PrimaryKey{}
	for n := 0; n < len(parts); n += 2 {
		pk.AddPrimaryKeyColumn(parts[n].(string), parts[n+1])
	}
	return pk
}

// checkKeyErrors: a wrong key refuses an operation, but in a batch its row alone.
func checkKeyErrors(name string) {
	four := []any{"a", "1", "b", "2", "c", "3", "d", "4"}
	for _, one := range []struct {
		pk   *ts.PrimaryKey
		text string
	}{
		{pkOf("pk1", "a"), "Validate PK size fail. Input: 1, Meta: 2."},
		{pkOf("pk1", "a", "pk2", int64(1), "pk3", int64(1)), "Validate PK size fail. Input: 3, Meta: 2."},
		{pkOf(four...), "Validate PK size fail. Input: 4, Meta: 2."},
		{pkOf("pk2", int64(1), "pk1", "a"), "Validate PK name fail. Input: pk2, Meta: pk1."},
		{pkOf("pk1", int64(1), "PK2", "a"), "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING."},
		{pkOf("pk1", "a", "PK2", "a"), "Validate PK name fail. Input: PK2, Meta: pk2."},
		{pkOf("pk1", []byte("a"), "pk2", int64(1)), "Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING."},
		{pkOf("pk1", "a", "pk2", "1"), "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER."},
	} {
		for _, err := range everyRowCall(name, one.pk) {
			refused(err, 400, "OTSInvalidPK", one.text)
		}
		row := batch(false, putting(name, one.pk), putting(name, key("a", int64(1))))[name]
		same("in a batch", row[0].Error, ts.Error{Code: "OTSInvalidPK", Message: one.text})
		that("the other row", row[1].IsSucceed)
	}
	five := pkOf(append(four, "e", "5")...)
	for _, err := range everyRowCall(name, five) {
		invalid(err, "The number of primary key columns must be in range: [1, 4].")
	}
	low, high := &ts.PrimaryKey{}, &ts.PrimaryKey{}
	low.AddPrimaryKeyColumnWithMinValue("pk1")
	low.AddPrimaryKeyColumn("pk2", int64(1))
	high.AddPrimaryKeyColumn("pk1", "a")
	high.AddPrimaryKeyColumnWithMaxValue("pk2")
	for infinite, pk := range map[string]*ts.PrimaryKey{"VT_INF_MIN": low, "VT_INF_MAX": high} {
		// In a put or an update the SDK sends AUTO_INCREMENT for either.
		_, err := fetch(criteria(name, pk))
		invalid(err, infinite+" is an invalid type for the primary key.")
		invalid(sendDelete(deleting(name, pk)), infinite+" is an invalid type for the primary key.")
		_, err = sendBatch(false, deleting(name, pk))
		invalid(err, infinite+" is an invalid type for the primary key.")
	}
}

func everyRowCall(name string, pk *ts.PrimaryKey) []error {
	_, read := fetch(criteria(name, pk))
	_, wrote := sendPut(putting(name, pk))
	change := update(name, pk)
	change.PutColumn("c", int64(1))
	_, updated := send(change)
	return []error{read, wrote, updated, sendDelete(deleting(name, pk))}
}

// checkColumnNames: a name that is no name is refused wherever one may stand.
func checkColumnNames(name string) {
	row := key("names", int64(1))
	for _, wrong := range []string{"#", "#abc", "#公司", "# ", strings.Repeat("n", 256)} {
		text := fmt.Sprintf("Invalid column name: '%s'.", wrong)
		_, err := sendPut(putting(name, row, column(wrong, int64(1))))
		invalid(err, text)
		_, err = sendBatch(false, putting(name, row, column(wrong, int64(1))))
		invalid(err, text)
		for kind := 0; kind < 4; kind++ {
			change := update(name, row)
			[]func(){
				func() { change.PutColumn(wrong, int64(1)) }, func() { change.DeleteColumn(wrong) },
				func() { change.DeleteColumnWithTimestamp(wrong, 1) },
				func() { change.IncrementColumn(wrong, 1) },
			}[kind]()
			_, err = send(change)
			invalid(err, text)
		}
		for _, query := range []*ts.SingleRowQueryCriteria{
			{ColumnsToGet: []string{"c", wrong}}, {StartColumn: &wrong}, {EndColumn: &wrong},
		} {
			query.TableName, query.PrimaryKey, query.MaxVersion = name, row, 1
			_, err = fetch(query)
			invalid(err, text)
		}
	}
	good := []string{"公司", ".", ":", "'", "\"", "$", "&", "*", "(", ")", "/", "\\", "\n", "\r", " ",
		" a", "a#", "0", strings.Repeat("n", 255), strings.Repeat("公", 85)}
	cells := []ts.AttributeColumn{}
	for _, allowed := range good {
		cells = append(cells, column(allowed, allowed))
	}
	put(name, row, cells...)
	found := read(name, row)
	for _, allowed := range good {
		same("value", found[allowed], allowed)
		query := criteria(name, row)
		query.ColumnsToGet = []string{allowed}
		same("alone", values(get(query)), map[string]any{allowed: allowed})
	}
}

func checkReadErrors(name string) {
	row := key("reads", int64(1))
	query := criteria(name, row)
	for n := 0; n < 1025; n++ {
		query.ColumnsToGet = append(query.ColumnsToGet, fmt.Sprint("c", n))
	}
	_, err := fetch(query)
	invalid(err, "The number of columns from the request exceeds the limit, limit count: 1024, "+
		"column count: 1025.")
	query.ColumnsToGet = query.ColumnsToGet[:1024]
	_, err = fetch(query)
	must(err)
	query = criteria(name, row)
	query.TimeRange = &ts.TimeRange{Specific: 5}
	_, err = fetch(query)
	refused(err, 400, "OTSParameterInvalid", "") // With max_versions beside it.
	query.MaxVersion = 0
	_, err = fetch(query)
	must(err)
	query.MaxVersion = -1
	_, err = fetch(query)
	refused(err, 400, "OTSParameterInvalid", "")
	for _, times := range []*ts.TimeRange{{Start: -1, End: 5}, {Specific: -1},
		{Start: math.MaxInt64 / 1000, End: math.MaxInt64}, {Specific: math.MaxInt64 / 1000}} {
		query = &ts.SingleRowQueryCriteria{TableName: name, PrimaryKey: row, TimeRange: times}
		_, err = fetch(query)
		invalid(err, "Timestamp must be in range [0, INT64_MAX/1000).")
	}
	_, err = fetch(criteria("absent", row))
	refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
}

func checkRangeErrors(name string) {
	low, high := bounds("a")
	attempt := func(from, to *ts.PrimaryKey, direction ts.Direction, limit int32) error {
		_, err := client.GetRange(&ts.GetRangeRequest{RangeRowQueryCriteria: &ts.RangeRowQueryCriteria{
			TableName: name, StartPrimaryKey: from, EndPrimaryKey: to, MaxVersion: 1,
			Direction: direction, Limit: limit}})
		return err
	}
	must(attempt(low, high, ts.FORWARD, 0))
	must(attempt(high, low, ts.BACKWARD, 0))
	forward := "Begin key must less than end key in FORWARD"
	backward := "Begin key must more than end key in BACKWARD"
	invalid(attempt(high, low, ts.FORWARD, 0), forward)
	invalid(attempt(key("a", int64(1)), key("a", int64(1)), ts.FORWARD, 0), forward)
	invalid(attempt(low, high, ts.BACKWARD, 0), backward)
	invalid(attempt(low, low, ts.BACKWARD, 0), backward)
	invalid(attempt(low, high, ts.FORWARD, -1), "The limit must be greater than 0.")
	refused(attempt(pkOf("pk1", "a"), high, ts.FORWARD, 0), 400, "OTSInvalidPK",
		"Validate PK size fail. Input: 1, Meta: 2.")
	refused(attempt(low, key("a", "b"), ts.FORWARD, 0), 400, "OTSInvalidPK",
		"Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.")
	invalid(attempt(key(strings.Repeat("k", 1025), int64(1)), high, ts.FORWARD, 0), "The length of "+
		"primary key column: 'pk1' exceeds the MaxLength:1024 with CurrentLength:1025.")
}

func checkWriteErrors(name string) {
	row := key("writes", int64(1))
	put(name, row, column("s", "text"), column("n", int64(1)))
	_, err := send(update(name, row))
	invalid(err, "Attribute column is missing.")
	_, err = sendBatch(false, update(name, row))
	invalid(err, "Attribute column is missing.")
	change := update(name, row)
	for n := 0; n < 1025; n++ {
		change.PutColumn(fmt.Sprint("c", n), int64(1))
	}
	_, err = send(change)
	invalid(err, "The number of attribute columns exceeds the limit, limit count: 1024, column "+
		"count: 1025.")
	change = update(name, row)
	change.PutColumn("c", strings.Repeat("x", mib2+1))
	_, err = send(change)
	invalid(err, "The length of attribute column: 'c' exceeds the MaxLength:2097152 with "+
		"CurrentLength:2097153.")
	for _, wrong := range []func(change *ts.UpdateRowChange){
		func(change *ts.UpdateRowChange) { change.IncrementColumn("s", 1) },
		func(change *ts.UpdateRowChange) { change.IncrementColumn("n", 1); change.PutColumn("n", int64(1)) },
		func(change *ts.UpdateRowChange) {
			change.IncrementColumn("n", 1)
			change.SetReturnIncrementValue()
			change.AppendIncrementColumnToReturn("s")
		},
	} {
		change = update(name, row)
		wrong(change)
		_, err = send(change)
		refused(err, 400, "OTSParameterInvalid", "")
	}
	same("nothing was written", read(name, row), map[string]any{"s": "text", "n": int64(1)})
	_, err = sendPut(putting("absent", row))
	refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
	refused(sendDelete(deleting("absent", row)), 404, "OTSObjectNotExist",
		"Requested table does not exist.")
}

// checkVersionErrors: a version must be in range, near the server's clock, and alive.
func checkVersionErrors(name string) {
	row := key("version", int64(1))
	for _, at := range []int64{-1, math.MaxInt64 / 1000, math.MaxInt64} {
		change := update(name, row)
		change.PutColumnWithTimestamp("c", int64(1), at)
		_, err := send(change)
		invalid(err, "Timestamp must be in range [0, INT64_MAX/1000).")
		change = update(name, row)
		change.DeleteColumnWithTimestamp("c", at)
		_, err = send(change)
		invalid(err, "Timestamp must be in range [0, INT64_MAX/1000).")
	}
	meta := &ts.TableMeta{TableName: "go_near"}
	meta.AddPrimaryKeyColumn("k", ts.PrimaryKeyType_STRING)
	must(create(meta, ts.NewTableOption(-1, 1)))
	defer drop(meta.TableName)
	change := update(meta.TableName, pkOf("k", "a"))
	change.PutColumnWithTimestamp("c", int64(1), 1000)
	_, err := send(change)
	refused(err, 400, "OTSParameterInvalid", "")
}

func checkUpdateRefused() {
	meta := &ts.TableMeta{TableName: "go_no_update"}
	meta.AddPrimaryKeyColumn("k", ts.PrimaryKeyType_STRING)
	option, never := ts.NewTableOption(-1, 1), false
	option.AllowUpdate = &never
	must(create(meta, option))
	defer drop(meta.TableName)
	text := "Update operation is not allowed in this table"
	change := update(meta.TableName, pkOf("k", "a"))
	change.PutColumn("c", int64(1))
	_, err := send(change)
	invalid(err, text)
	_, err = sendBatch(false, change)
	invalid(err, text)
	put(meta.TableName, pkOf("k", "a"), column("c", int64(1)))
	same("put", read(meta.TableName, pkOf("k", "a")), map[string]any{"c": int64(1)})
}
