package main

import (
	"os"
	"slices"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkTables() {
	check("table-life", func() {
		meta := &ts.TableMeta{}
		meta.AddPrimaryKeyColumn("s", ts.PrimaryKeyType_STRING)
		meta.AddPrimaryKeyColumn("i", ts.PrimaryKeyType_INTEGER)
		meta.AddPrimaryKeyColumn("b", ts.PrimaryKeyType_BINARY)
		meta.AddPrimaryKeyColumnOption("n", ts.PrimaryKeyType_INTEGER, ts.AUTO_INCREMENT)
		name := tableOf(meta, nil)
		listed, err := client.ListTable()
		must(err)
		that("listed", slices.Contains(listed.TableNames, name))
		told, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
		must(err)
		same("name", told.TableMeta.TableName, name)
		names, kinds := []string{}, []ts.PrimaryKeyType{}
		for _, part := range told.TableMeta.SchemaEntry {
			names, kinds = append(names, *part.Name), append(kinds, *part.Type)
		}
		same("key", names, []string{"s", "i", "b", "n"})
		same("types", kinds, []ts.PrimaryKeyType{2, 1, 3, 1})
		that("option", *told.TableMeta.SchemaEntry[3].Option == ts.AUTO_INCREMENT)
		same("ttl", told.TableOption.TimeToAlive, -1)
		same("versions", told.TableOption.MaxVersion, 5)
		same("deviation", told.TableOption.DeviationCellVersionInSec, int64(1<<33))
		that("no stream", !told.StreamDetails.EnableStream && told.StreamDetails.StreamId == nil)
		drop(name)
		listed, err = client.ListTable()
		must(err)
		that("gone", !slices.Contains(listed.TableNames, name))
	})
	check("table-options", func() {
		name := table(nil)
		defer drop(name)
		option := ts.NewTableOption(86400, 7)
		option.DeviationCellVersionInSec = 1000
		told, err := client.UpdateTable(&ts.UpdateTableRequest{TableName: name, TableOption: option})
		must(err)
		same("told", []int{told.TableOption.TimeToAlive, told.TableOption.MaxVersion}, []int{86400, 7})
		that("no stream", !told.StreamDetails.EnableStream)
		again, err := client.DescribeTable(&ts.DescribeTableRequest{TableName: name})
		must(err)
		same("kept", again.TableOption.DeviationCellVersionInSec, int64(1000))
	})
	check("table-errors", func() {
		name := table(nil)
		defer drop(name)
		meta := &ts.TableMeta{TableName: name}
		meta.AddPrimaryKeyColumn("pk1", ts.PrimaryKeyType_STRING)
		request := &ts.CreateTableRequest{TableMeta: meta, TableOption: ts.NewTableOption(-1, 1),
			ReservedThroughput: &ts.ReservedThroughput{}}
		_, err := client.CreateTable(request)
		refused(err, 409, "OTSObjectAlreadyExist", "Requested table already exists.")
		meta.TableName = "3t"
		_, err = client.CreateTable(request)
		refused(err, 400, "OTSParameterInvalid", "Invalid table name: '3t'.")
		_, err = client.DescribeTable(&ts.DescribeTableRequest{TableName: "absent"})
		refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
		_, err = client.DeleteTable(&ts.DeleteTableRequest{TableName: "absent"})
		refused(err, 404, "OTSObjectNotExist", "Requested table does not exist.")
		short := &ts.PrimaryKey{}
		short.AddPrimaryKeyColumn("pk1", "a")
		_, err = client.GetRow(&ts.GetRowRequest{SingleRowQueryCriteria: criteria(name, short)})
		refused(err, 400, "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2.")
		_, err = client.GetRow(&ts.GetRowRequest{SingleRowQueryCriteria: criteria(name, key("a", "b"))})
		refused(err, 400, "OTSInvalidPK", "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.")
	})
	check("wrong-credentials", func() {
		given := []string{os.Getenv("ROWTIDE_INSTANCE"), os.Getenv("ROWTIDE_KEY_ID"),
			os.Getenv("ROWTIDE_KEY_SECRET")}
		for wrong, text := range []string{"The instance is not found.",
			"The AccessKeyID does not exist.", "Signature mismatch."} {
			told := slices.Clone(given)
			told[wrong] += "x"
			stranger := ts.NewClient(os.Getenv("ROWTIDE_ENDPOINT"), told[0], told[1], told[2])
			_, err := stranger.ListTable()
			refused(err, 403, "OTSAuthFailed", text)
		}
	})
}
