// Command postgres drives a PostgreSQL server by pgx with the rows of package load. The server is
// named by ROWTIDE_ENDPOINT, a connection string.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"rowtide/bench/load"
)

const columns = 14

// connections are kept between commands, so that no measurement opens one.
var connections []*pgx.Conn

func main() {
	load.Serve(do)
}

func do(command load.Command) (load.Result, error) {
	if err := connect(max(1, command.Connections)); err != nil {
		return load.Result{}, err
	}
	switch command.Do {
	case "create":
		return load.Result{}, create(command.Table)
	case "put":
		text := insert(command.Table, 1)
		return load.Loop(command.Connections, command.Rows, 1, func(connection, number int) error {
			arguments := values(nil, command.First+number)
			_, err := connections[connection].Exec(context.Background(), text, arguments...)
			return err
		})
	case "get":
		text := "SELECT * FROM " + command.Table + " WHERE id = $1 AND n = $2"
		return load.Loop(command.Connections, command.Rows, 1, func(connection, number int) error {
			return get(connections[connection], text, command.First+number)
		})
	case "batch":
		text, calls := insert(command.Table, load.BatchRows), command.Rows/load.BatchRows
		return load.Loop(command.Connections, calls, load.BatchRows, func(connection, number int) error {
			first := command.First + number*load.BatchRows
			arguments := make([]any, 0, load.BatchRows*columns)
			for row := first; row < first+load.BatchRows; row++ {
				arguments = values(arguments, row)
			}
			_, err := connections[connection].Exec(context.Background(), text, arguments...)
			return err
		})
	case "range":
		return scan(command)
	}
	return load.Result{}, fmt.Errorf("unknown command: %q", command.Do)
}

func connect(count int) error {
	for len(connections) < count {
		connection, err := pgx.Connect(context.Background(), os.Getenv("ROWTIDE_ENDPOINT"))
		if err != nil {
			return err
		}
		connections = append(connections, connection)
	}
	return nil
}

func create(table string) error {
	names := []string{}
	for i := range (load.Row{}).Texts {
		names = append(names, fmt.Sprintf("text%d text", i))
	}
	_, err := connections[0].Exec(context.Background(), "CREATE TABLE "+table+" (id text, n bigint, "+
		strings.Join(names, ", ")+", count bigint, total bigint, PRIMARY KEY (id, n))")
	return err
}

// insert returns a statement that writes so many rows, and replaces those that are there.
func insert(table string, rows int) string {
	tuples, sets := []string{}, []string{}
	for row := 0; row < rows; row++ {
		marks := []string{}
		for column := 1; column <= columns; column++ {
			marks = append(marks, fmt.Sprintf("$%d", row*columns+column))
		}
		tuples = append(tuples, "("+strings.Join(marks, ",")+")")
	}
	for i := range (load.Row{}).Texts {
		sets = append(sets, fmt.Sprintf("text%d = excluded.text%d", i, i))
	}
	sets = append(sets, "count = excluded.count", "total = excluded.total")
	return "INSERT INTO " + table + " VALUES " + strings.Join(tuples, ",") +
		" ON CONFLICT (id, n) DO UPDATE SET " + strings.Join(sets, ", ")
}

func values(arguments []any, number int) []any {
	row := load.RowOf(number)
	arguments = append(arguments, row.ID, row.N)
	for _, text := range row.Texts {
		arguments = append(arguments, text)
	}
	return append(arguments, row.Count, row.Total)
}

func get(connection *pgx.Conn, text string, number int) error {
	rows, err := connection.Query(context.Background(), text, load.ID(number), int64(number))
	if err != nil {
		return err
	}
	found, err := take(rows)
	if err == nil && found != 1 {
		err = fmt.Errorf("row %d is not there", number)
	}
	return err
}

// take reads rows into Go values, as a program would, and returns their number.
func take(rows pgx.Rows) (int, error) {
	defer rows.Close()
	found, row := 0, load.Row{}
	targets := []any{&row.ID, &row.N}
	for i := range row.Texts {
		targets = append(targets, &row.Texts[i])
	}
	targets = append(targets, &row.Count, &row.Total)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return found, err
		}
		found++
	}
	return found, rows.Err()
}

// scan reads the whole table in the order of its key, Repeat times, each by one statement.
func scan(command load.Command) (load.Result, error) {
	var times []time.Duration
	began := time.Now()
	for n := 0; n < command.Repeat; n++ {
		sent := time.Now()
		rows, err := connections[0].Query(context.Background(),
			"SELECT * FROM "+command.Table+" ORDER BY id, n")
		if err != nil {
			return load.Result{}, err
		}
		found, err := take(rows)
		if err != nil {
			return load.Result{}, err
		}
		if found != command.Rows {
			return load.Result{}, fmt.Errorf("a scan found %d rows of %d", found, command.Rows)
		}
		times = append(times, time.Since(sent))
	}
	return load.Summary(times, command.Rows*command.Repeat, time.Since(began)), nil
}
