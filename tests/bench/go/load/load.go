// Package load runs closed loops for a benchmark: it takes commands from standard input, one JSON
// object a line, and prints what each gave as one JSON object a line.
package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// BatchRows is the number of rows of one batch.
const BatchRows = 200

// spread is an odd multiplier modulo 2^64: row numbers become keys in no order, each once.
const spread = 0x9E3779B97F4A7C15

const texts = 10

// Command names what to do with rows First to First+Rows of a table. For "range" Rows is what one
// scan returns, and Repeat the number of scans.
type Command struct {
	Do          string
	Table       string
	Connections int
	First       int
	Rows        int
	Repeat      int
}

// Result tells of one command. P50Ms and P99Ms are those of single calls.
type Result struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	P50Ms   float64 `json:"p50_ms"`
	P99Ms   float64 `json:"p99_ms"`
	Error   string  `json:"error"`
}

// Row is one row: a key of two columns, ten texts of 20 bytes and two integers.
type Row struct {
	ID    string
	N     int64
	Texts [texts]string
	Count int64
	Total int64
}

// ID returns the first key column of a row.
func ID(number int) string {
	return fmt.Sprintf("%016x", uint64(number)*spread)
}

// RowOf returns a row by its number.
func RowOf(number int) Row {
	pattern := number % 64
	row := Row{ID: ID(number), N: int64(number), Count: int64(pattern), Total: int64(pattern) * 1000003}
	for i := range row.Texts {
		row.Texts[i] = fmt.Sprintf("%020d", uint64(pattern)*spread*uint64(i+3))
	}
	return row
}

// Serve answers commands until standard input ends.
func Serve(do func(Command) (Result, error)) {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var command Command
		var result Result
		err := json.Unmarshal(lines.Bytes(), &command)
		if err == nil {
			result, err = do(command)
		}
		if err != nil {
			result.Error = err.Error()
		}
		if err := answers.Encode(result); err != nil {
			os.Exit(1)
		}
	}
}

// Loop makes calls 0 to calls-1 on so many connections, each one at a time. A call that fails ends
// the loop. unit is the number of rows of one call.
func Loop(connections, calls, unit int, call func(connection, number int) error) (Result, error) {
	times := make([]time.Duration, calls)
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var running sync.WaitGroup
	began := time.Now()
	for connection := 0; connection < connections; connection++ {
		running.Add(1)
		go func(connection int) {
			defer running.Done()
			for failure.Load() == nil {
				number := int(next.Add(1)) - 1
				if number >= calls {
					return
				}
				sent := time.Now()
				if err := call(connection, number); err != nil {
					failure.CompareAndSwap(nil, &err)
					return
				}
				times[number] = time.Since(sent)
			}
		}(connection)
	}
	running.Wait()
	elapsed := time.Since(began)
	if err := failure.Load(); err != nil {
		return Result{}, *err
	}
	return Summary(times, calls*unit, elapsed), nil
}

// Summary returns the result of calls that took these times.
func Summary(times []time.Duration, rows int, elapsed time.Duration) Result {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return Result{
		Rows: rows, Seconds: elapsed.Seconds(), P50Ms: at(times, 50), P99Ms: at(times, 99),
	}
}

func at(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[(len(sorted)-1)*percent/100].Microseconds()) / 1000
}
