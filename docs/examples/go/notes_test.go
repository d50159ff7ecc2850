package notes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

var client *ts.TableStoreClient

// TestMain runs the tests of this package against a server of their own.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "rowtide-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	readyFile := filepath.Join(folder, "ready.json")
	server := exec.Command("rowtide", "dev", "--ephemeral", "--port", "0",
		"--ready-file", readyFile)
	server.Stderr = os.Stderr
	// The server ends with this process, however this process ends.
	server.Env = append(os.Environ(), fmt.Sprintf("ROWTIDE_PARENT=%d", os.Getpid()))
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Wait()
	defer server.Process.Signal(syscall.SIGTERM)
	client = connect(readyFile)
	return m.Run()
}

// connect waits until the server has written the file that says how it is reached.
func connect(readyFile string) *ts.TableStoreClient {
	var ready struct {
		Endpoint  string
		Instance  string
		KeyId     string `json:"access_key_id"`
		KeySecret string `json:"access_key_secret"`
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if text, err := os.ReadFile(readyFile); err == nil {
			if err := json.Unmarshal(text, &ready); err != nil {
				panic(err)
			}
			return ts.NewClient(ready.Endpoint, ready.Instance, ready.KeyId, ready.KeySecret)
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("rowtide dev was not ready within a minute")
}

func TestANoteIsReadBack(t *testing.T) {
	meta := &ts.TableMeta{TableName: "notes"}
	meta.AddPrimaryKeyColumn("user", ts.PrimaryKeyType_STRING)
	if _, err := client.CreateTable(&ts.CreateTableRequest{
		TableMeta: meta, TableOption: ts.NewTableOption(-1, 1),
		ReservedThroughput: &ts.ReservedThroughput{},
	}); err != nil {
		t.Fatal(err)
	}
	key := &ts.PrimaryKey{}
	key.AddPrimaryKeyColumn("user", "ada")
	note := &ts.PutRowChange{TableName: "notes", PrimaryKey: key}
	note.AddColumn("text", "hello")
	note.SetCondition(ts.RowExistenceExpectation_IGNORE)
	if _, err := client.PutRow(&ts.PutRowRequest{PutRowChange: note}); err != nil {
		t.Fatal(err)
	}
	found, err := client.GetRow(&ts.GetRowRequest{SingleRowQueryCriteria: &ts.SingleRowQueryCriteria{
		TableName: "notes", PrimaryKey: key, MaxVersion: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if found.Columns[0].Value != "hello" {
		t.Fatalf("found %v", found.Columns)
	}
}
