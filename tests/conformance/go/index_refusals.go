package main

import (
	"fmt"
	"strings"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkIndexRefusals() {
	check("index-limits", checkIndexLimits)
	check("index-edges", checkIndexEdges)
	check("index-errors", checkIndexErrors)
	check("index-names", checkIndexNames)
	check("index-options", checkIndexOptions)
	check("index-read-only", eachKind(checkReadOnlyIndex))
	check("index-values", checkIndexValues)
}

// misfit holds an index to its refusal by CreateIndex on each table and by CreateTable.
func misfit(text string, index *ts.IndexMeta, tables ...string) {
	for _, table := range tables {
		invalid(addIndex(table, index, true), text)
	}
	invalid(createIndexed(indexedMeta(), ts.NewTableOption(-1, 1), index), text)
}

func sizedIndex(keys, columns int) *ts.IndexMeta {
	sized := index(ts.IT_GLOBAL_INDEX, nil)
	for n := 0; n < keys; n++ {
		sized.AddPrimaryKeyColumn(fmt.Sprint("k", n))
	}
	for n := 0; n < columns; n++ {
		sized.AddDefinedColumn(fmt.Sprint("c", n))
	}
	return sized
}

// checkIndexLimits: the sizes of an index are looked at before its table is.
func checkIndexLimits() {
	name := indexed()
	defer drop(name)
	keys := "The number of primary key columns must be in range: [1, 4] in index."
	misfit(keys, sizedIndex(0, 0), name, "absent")
	misfit(keys, sizedIndex(5, 0), name, "absent")
	misfit("The number of attribute columns must be in range: [0, 32] in index.",
		sizedIndex(1, 33), name, "absent")
	noTable(addIndex("absent", byN(ts.IT_GLOBAL_INDEX), true))
	noTable(removeIndex("absent", "go_index"))
	many := []*ts.IndexMeta{}
	for n := 0; n < 6; n++ {
		many = append(many, byN(ts.IT_LOCAL_INDEX))
	}
	for n := 0; n < 5; n++ {
		must(addIndex(name, many[n], false))
	}
	quota := "Number of index per table exceeds the quota:5."
	invalid(addIndex(name, many[5], false), quota)
	invalid(createIndexed(indexedMeta(), ts.NewTableOption(-1, 1), many...), quota)
	same("indexes", len(shownIndexes(name)), 5)
}

// checkIndexEdges: four columns of its own, then the table's key, and every defined column.
func checkIndexEdges() {
	meta := indexedMeta()
	meta.DefinedColumns = nil
	fullest := index(ts.IT_LOCAL_INDEX, []string{"pk1"})
	widest := index(ts.IT_GLOBAL_INDEX, []string{"c0", "c1", "c2", "c3"}, "c4")
	change, wide := putting(meta.TableName, key("a", int64(1))), &ts.PrimaryKey{}
	for n := 0; n < 32; n++ {
		column := fmt.Sprint("c", n)
		meta.AddDefinedColumn(column, ts.DefinedColumn_INTEGER)
		fullest.AddDefinedColumn(column)
		change.AddColumn(column, int64(n))
		if n < 4 {
			wide.AddPrimaryKeyColumn(column, int64(n))
		}
	}
	wide.AddPrimaryKeyColumn("pk1", "a")
	wide.AddPrimaryKeyColumn("pk2", int64(1))
	must(createIndexed(meta, ts.NewTableOption(-1, 1), widest, fullest))
	defer drop(meta.TableName)
	same("its key", len(shownIndexes(meta.TableName)[0].Primarykey), 4)
	same("its columns", len(shownIndexes(meta.TableName)[1].DefinedColumns), 32)
	_, err := sendPut(change)
	must(err)
	same("all columns", len(read(fullest.IndexName, key("a", int64(1)))), 32)
	caughtUp("the row", func() bool { return read(widest.IndexName, wide) != nil })
	same("the row", read(widest.IndexName, wide), map[string]any{"c4": int64(4)})
}

func checkIndexErrors() {
	name := indexed()
	defer drop(name)
	misfitted := func(text string, kind ts.IndexType, key []string, columns ...string) {
		wrong := index(kind, key, columns...)
		misfit(strings.ReplaceAll(text, "NAME", wrong.IndexName), wrong, name)
	}
	unknown := "Column 'm' of index 'NAME' is not a defined column."
	misfitted(unknown, ts.IT_GLOBAL_INDEX, []string{"m"})
	misfitted(unknown, ts.IT_LOCAL_INDEX, []string{"pk1"}, "m")
	misfitted("VT_DOUBLE is an invalid type for the primary key.", ts.IT_GLOBAL_INDEX, []string{"d"})
	twice := "Duplicated column name: 'n' in index 'NAME'."
	misfitted(twice, ts.IT_GLOBAL_INDEX, []string{"n", "n"})
	misfitted(twice, ts.IT_GLOBAL_INDEX, []string{"n"}, "n")
	misfitted("Invalid column name: '#n'.", ts.IT_GLOBAL_INDEX, []string{"#n"})
	misfitted("The first primary key column of local index 'NAME' must be 'pk1', the table's, "+
		"but is 'n'.", ts.IT_LOCAL_INDEX, []string{"n", "pk1"})
	used := byN(ts.IT_GLOBAL_INDEX)
	must(addIndex(name, used, false))
	invalid(undefine(name, "s"),
		fmt.Sprintf("Defined column 's' is used by index '%s'.", used.IndexName))
	must(removeIndex(name, used.IndexName))
	must(undefine(name, "s"))
}

func checkIndexNames() {
	present := byN(ts.IT_GLOBAL_INDEX)
	name := indexed(present)
	defer drop(name)
	for _, wrong := range []string{"3x", "x-y", strings.Repeat("n", 256)} {
		text := fmt.Sprintf("Invalid table name: '%s'.", wrong)
		named := byN(ts.IT_GLOBAL_INDEX)
		named.IndexName = wrong
		misfit(text, named, name, "absent")
		invalid(removeIndex(name, wrong), text)
	}
	exists := func(err error) {
		refused(err, 409, "OTSObjectAlreadyExist", "Requested table already exists.")
	}
	for _, taken := range []string{present.IndexName, name} {
		named := byN(ts.IT_LOCAL_INDEX)
		named.IndexName = taken
		exists(addIndex(name, named, false))
		exists(createIndexed(indexedMeta(), ts.NewTableOption(-1, 1), named))
	}
	meta := indexedMeta()
	meta.TableName = present.IndexName
	exists(createIndexed(meta, ts.NewTableOption(-1, 1)))
}

// checkIndexOptions: versions and a lifetime would change what is visible without a write.
func checkIndexOptions() {
	name := indexed(byN(ts.IT_LOCAL_INDEX))
	defer drop(name)
	for text, option := range map[string]*ts.TableOption{
		"The max_versions of a table with an index must be 1, but is 2.":      ts.NewTableOption(-1, 2),
		"The time_to_live of a table with an index must be -1, but is 86400.": ts.NewTableOption(86400, 1),
	} {
		meta := indexedMeta()
		must(createIndexed(meta, option))
		invalid(addIndex(meta.TableName, byN(ts.IT_GLOBAL_INDEX), false), text)
		drop(meta.TableName)
		invalid(createIndexed(meta, option, byN(ts.IT_GLOBAL_INDEX)), text)
		_, err := client.UpdateTable(&ts.UpdateTableRequest{TableName: name, TableOption: option})
		invalid(err, text)
	}
}

func checkReadOnlyIndex(kind ts.IndexType) {
	index := byN(kind)
	table := indexed(index)
	defer drop(table)
	name, row := index.IndexName, entryKey(index, "a", 1, 1)
	changed := update(name, row)
	changed.PutColumn("s", "x")
	_, putErr := sendPut(putting(name, row, column("s", "x")))
	_, updateErr := send(changed)
	_, batchErr := sendBatch(false, putting(name, row, column("s", "x")))
	_, optionErr := client.UpdateTable(&ts.UpdateTableRequest{
		TableName: name, TableOption: ts.NewTableOption(-1, 1)})
	_, dropErr := client.DeleteTable(&ts.DeleteTableRequest{TableName: name})
	_, startErr := start(name, &ts.PrimaryKey{PrimaryKeys: row.PrimaryKeys[:1]})
	for _, err := range []error{putErr, updateErr, sendDelete(deleting(name, row)), batchErr,
		optionErr, dropErr, startErr, addIndex(name, byN(kind), false),
		define(name, ts.DefinedColumnSchema{Name: "x", ColumnType: ts.DefinedColumn_STRING}),
	} {
		invalid(err, fmt.Sprintf("Table '%s' is an index: it can only be read, and dropped.", name))
	}
}

// checkIndexValues: a write that an index could not hold is refused, and changes neither.
func checkIndexValues() {
	local := byN(ts.IT_LOCAL_INDEX)
	name := indexed(local, index(ts.IT_GLOBAL_INDEX, []string{"b"}))
	defer drop(name)
	row := key("a", int64(1))
	for text, wrong := range map[string]ts.AttributeColumn{
		"Invalid column type for column n expect VT_INTEGER actual VT_STRING": column("n", "1"),
		"The length of primary key column: 'b' exceeds the MaxLength:1024 with " +
			"CurrentLength:1025.": column("b", make([]byte, 1025)),
	} {
		_, err := sendPut(putting(name, row, wrong))
		invalid(err, text)
		change := update(name, row)
		change.PutColumn(wrong.ColumnName, wrong.Value)
		_, err = send(change)
		invalid(err, text)
	}
	same("the row", read(name, row), map[string]any(nil))
	holds(local)
	put(name, row, column("d", "no index looks at it"), column("n", int64(1)),
		column("b", make([]byte, 1024)))
	holds(local, entry(local, "a", 1, 1, ""))
}
