package main

import (
	"fmt"

	ts "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func checkConditions() {
	check("condition-kinds", checkConditionKinds)
	check("conditions-combined", checkCombined)
	check("conditions-on-absent-rows", checkAbsentRows)
	check("conditions-on-writes", checkConditionedWrites)
}

func single(name string, comparator ts.ComparatorType, value any) *ts.SingleColumnCondition {
	return ts.NewSingleColumnCondition(name, comparator, value)
}

// strictly makes a condition that fails where the column is missing.
func strictly(condition *ts.SingleColumnCondition) *ts.SingleColumnCondition {
	condition.FilterIfMissing = true
	return condition
}

func combined(operator ts.LogicalOperator, parts ...ts.ColumnFilter) ts.ColumnFilter {
	node := ts.NewCompositeColumnCondition(operator)
	for _, part := range parts {
		node.AddFilter(part)
	}
	return node
}

// meets updates a row under a condition and says whether it was written.
func meets(name string, row *ts.PrimaryKey, condition ts.ColumnFilter) bool {
	change := update(name, row)
	change.PutColumn("done", true)
	change.SetColumnCondition(condition)
	_, err := send(change)
	if err == nil {
		return true
	}
	refused(err, 403, "OTSConditionCheckFail", "Condition check failed.")
	return false
}

// checkConditionKinds compares every type with less, equal and more; another type is never equal.
func checkConditionKinds() {
	name := table(nil)
	defer drop(name)
	row := key("a", int64(1))
	cases := []struct{ less, value, more any }{
		{int64(4), int64(5), int64(6)}, {1.25, 1.5, 1.75}, {"a", "b", "ba"}, {"", "你", "🌊"},
		{[]byte{0}, []byte{0, 1}, []byte{0, 255}}, {false, true, nil},
	}
	passes := map[ts.ComparatorType][3]bool{
		ts.CT_EQUAL: {false, true, false}, ts.CT_NOT_EQUAL: {true, false, true},
		ts.CT_GREATER_THAN: {true, false, false}, ts.CT_GREATER_EQUAL: {true, true, false},
		ts.CT_LESS_THAN: {false, false, true}, ts.CT_LESS_EQUAL: {false, true, true},
	}
	for _, one := range cases {
		put(name, row, column("c", one.value))
		for comparator, wanted := range passes {
			for n, other := range []any{one.less, one.value, one.more} {
				if other == nil {
					continue
				}
				what := fmt.Sprintf("%v %d %v", one.value, comparator, other)
				same(what, meets(name, row, single("c", comparator, other)), wanted[n])
			}
		}
	}
	put(name, row, column("c", int64(5)))
	for _, other := range []any{"5", 5.0, true, []byte("5")} {
		same("of another type", meets(name, row, single("c", ts.CT_EQUAL, other)), false)
	}
}

func checkCombined() {
	name := table(nil)
	defer drop(name)
	row := key("a", int64(1))
	put(name, row, column("n", int64(5)), column("s", "text"))
	yes, no := single("n", ts.CT_EQUAL, int64(5)), single("s", ts.CT_EQUAL, "other")
	absent := strictly(single("x", ts.CT_EQUAL, int64(1)))
	cases := []struct {
		condition ts.ColumnFilter
		passes    bool
	}{
		{combined(ts.LO_AND, yes, yes), true}, {combined(ts.LO_AND, yes, no), false},
		{combined(ts.LO_OR, no, yes), true}, {combined(ts.LO_OR, no, absent), false},
		{combined(ts.LO_NOT, no), true}, {combined(ts.LO_NOT, yes), false},
		{combined(ts.LO_NOT, absent), true}, {single("x", ts.CT_EQUAL, int64(1)), true},
		{absent, false}, {combined(ts.LO_NOT, combined(ts.LO_OR, no, absent)), true},
		{combined(ts.LO_AND, combined(ts.LO_OR, no, yes), combined(ts.LO_NOT, no), yes), true},
		{combined(ts.LO_AND, combined(ts.LO_OR, no, yes), combined(ts.LO_NOT, yes), yes), false},
	}
	for n, one := range cases {
		same(fmt.Sprint("condition ", n), meets(name, row, one.condition), one.passes)
	}
}

// checkAbsentRows: only what passes without its column holds for a row that is not there.
func checkAbsentRows() {
	name := table(nil)
	defer drop(name)
	lenient, strict := single("c", ts.CT_EQUAL, int64(1)), strictly(single("c", ts.CT_EQUAL, int64(1)))
	same("strict", meets(name, key("a", int64(1)), strict), false)
	same("not written", read(name, key("a", int64(1))), map[string]any(nil))
	same("lenient", meets(name, key("a", int64(2)), lenient), true)
	same("written", read(name, key("a", int64(2))), map[string]any{"done": true})
	change := deleting(name, key("a", int64(3)))
	change.SetColumnCondition(strict)
	refused(sendDelete(change), 403, "OTSConditionCheckFail", "Condition check failed.")
}

// checkConditionedWrites: a put, a delete and a row of a batch obey conditions as an update does.
func checkConditionedWrites() {
	name := table(nil)
	defer drop(name)
	row, failed := key("a", int64(1)), "Condition check failed."
	put(name, row, column("n", int64(5)))
	for _, passes := range []bool{false, true} {
		value := int64(6)
		if passes {
			value = 5
		}
		change := putting(name, row, column("n", int64(5)), column("passed", passes))
		change.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
		change.SetColumnCondition(single("n", ts.CT_EQUAL, value))
		result := batch(false, change)[name][0]
		same("in a batch", result.IsSucceed, passes)
		told, err := sendPut(change)
		if passes {
			must(err)
			same("units", *told.ConsumedCapacityUnit, ts.ConsumedCapacityUnit{Read: 1, Write: 1})
		} else {
			same("its error", result.Error, ts.Error{Code: "OTSConditionCheckFail", Message: failed})
			refused(err, 403, "OTSConditionCheckFail", failed)
		}
		gone := deleting(name, row)
		gone.SetCondition(ts.RowExistenceExpectation_EXPECT_EXIST)
		gone.SetColumnCondition(single("n", ts.CT_EQUAL, value))
		if passes {
			must(sendDelete(gone))
		} else {
			refused(sendDelete(gone), 403, "OTSConditionCheckFail", failed)
		}
	}
	same("deleted", read(name, row), map[string]any(nil))
}
