// Judges histories by porcupine: one JSON list of operations a line in, "yes" or "no" a line out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

// An operation as tests/histories/operation.py:to_json writes it.
type operation struct {
	Client   int             `json:"client"`
	Kind     string          `json:"kind"`
	Invoked  float64         `json:"invoked_s"`
	Returned *float64        `json:"returned_s"`
	Told     string          `json:"told"`
	Mark     string          `json:"mark"`
	Number   int             `json:"number"`
	Expect   string          `json:"expect"`
	IfMark   *string         `json:"if_mark"`
	Found    json.RawMessage `json:"found"`
}

// A row: absent, or a mark and perhaps a number.
type row struct {
	present bool
	mark    string
	counted bool
	number  int
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return
		}
		var history []operation
		if err := json.Unmarshal(line, &history); err != nil {
			panic(err)
		}
		if porcupine.CheckOperations(model.ToModel(), listed(history)) {
			fmt.Println("yes")
		} else {
			fmt.Println("no")
		}
	}
}

func listed(history []operation) []porcupine.Operation {
	var found []porcupine.Operation
	for index, one := range history {
		returned := int64(math.MaxInt64)
		if one.Returned != nil {
			returned = microseconds(*one.Returned)
		}
		found = append(found, porcupine.Operation{
			ClientId: index, Input: one, Call: microseconds(one.Invoked), Output: nil, Return: returned,
		})
	}
	return found
}

func microseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e6)) }

var model = porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{row{}} },
	Step: func(state, input, _ interface{}) []interface{} {
		before, one := state.(row), input.(operation)
		if one.Told == "unknown" {
			after := []interface{}{before}
			if one.Kind != "get" && holds(before, one) {
				after = append(after, changed(before, one))
			}
			return after
		}
		if after, explained := step(before, one); explained {
			return []interface{}{after}
		}
		return nil
	},
}

func step(before row, one operation) (row, bool) {
	if one.Kind == "get" {
		return before, before == rowOf(one.Found)
	}
	if one.Told == "refused" {
		return before, !holds(before, one)
	}
	after := changed(before, one)
	if one.Kind == "increment" {
		var answer int
		if err := json.Unmarshal(one.Found, &answer); err != nil {
			panic(err)
		}
		return after, holds(before, one) && answer == after.number
	}
	return after, holds(before, one)
}

func holds(before row, one operation) bool {
	if one.Expect == "EXPECT_EXIST" && !before.present {
		return false
	}
	if one.Expect == "EXPECT_NOT_EXIST" && before.present {
		return false
	}
	return one.IfMark == nil || before.present && before.mark == *one.IfMark
}

func changed(before row, one operation) row {
	switch one.Kind {
	case "put":
		return row{true, one.Mark, true, one.Number}
	case "update":
		return row{true, one.Mark, before.counted, before.number}
	case "increment":
		return row{true, one.Mark, true, before.number + one.Number}
	}
	return row{}
}

func rowOf(found json.RawMessage) row {
	var parts []any
	if err := json.Unmarshal(found, &parts); err != nil {
		panic(err)
	}
	if parts == nil {
		return row{}
	}
	one := row{present: true, mark: parts[0].(string)}
	if number, counted := parts[1].(float64); counted {
		one.counted, one.number = true, int(number)
	}
	return one
}
