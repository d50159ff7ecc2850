/** Lines and bars of a dashboard's panel, out of its rows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOf, LINES_MAX, seriesOf } from "../../../console/static/dashboards/series.js";
import { numberOf, valueText } from "../../../console/static/dashboards/values.js";

const AT = { name: "hour", type: "TIMESTAMP", is_group: true };
const ORIGIN = { name: "origin", type: "VARCHAR", is_group: true };
const COUNT = { name: "n", type: "BIGINT", is_group: false };
const MEAN = { name: "mean", type: "DOUBLE", is_group: false };

const hour = (number) => `2024-01-01T${String(number).padStart(2, "0")}:00:00Z`;
const seconds = (number) => Date.parse(hour(number)) / 1000;

test("each group is a line, and an absent row is a gap", () => {
  const rows = [
    [hour(1), "JFK", 1],
    [hour(1), "LGA", 2],
    [hour(2), "JFK", 3],
  ];
  const found = seriesOf({ columns: [AT, ORIGIN, COUNT], rows });
  assert.deepEqual(found.labels, ["JFK", "LGA"]);
  assert.deepEqual(found.places, [seconds(1), seconds(2)]);
  assert.deepEqual(found.lines, [
    [1, 3],
    [2, null],
  ]);
});

test("hours without any row are a gap", () => {
  const rows = [1, 2, 6].map((at) => [hour(at), at]);
  const found = seriesOf({ columns: [AT, COUNT], rows });
  assert.deepEqual(found.places, [1, 2, 3, 6].map(seconds));
  assert.deepEqual(found.lines, [[1, 2, null, 6]]);
});

test("rows in any order give the same lines", () => {
  const rows = [1, 2, 6].flatMap((at) => [
    [hour(at), "JFK", at],
    [hour(at), "LGA", 2 * at],
  ]);
  const columns = [AT, ORIGIN, COUNT];
  assert.deepEqual(seriesOf({ columns, rows }), seriesOf({ columns, rows: rows.toReversed() }));
});

test("each numeric column of each group is a line", () => {
  const found = seriesOf({ columns: [AT, ORIGIN, COUNT, MEAN], rows: [[hour(1), "JFK", 1, 2.5]] });
  assert.deepEqual(found.labels, ["JFK mean", "JFK n"]);
});

test("numbers that cannot be drawn are gaps", () => {
  const rows = [[hour(1), "nan"], [hour(2), "inf"], [hour(3), null], [hour(4), "9007199254740993"]];
  const found = seriesOf({ columns: [AT, MEAN], rows });
  assert.deepEqual(found.lines, [[null, null, null, 2 ** 53]]);
});

test("a panel without a group has no line", () => {
  assert.equal(seriesOf({ columns: [COUNT], rows: [[1]] }), null);
  assert.equal(seriesOf({ columns: [ORIGIN], rows: [["JFK"]] }), null);
});

test("a row whose time is NULL is left out", () => {
  const found = seriesOf({ columns: [AT, COUNT], rows: [[null, 7], [hour(1), 1]] });
  assert.deepEqual(found.lines, [[1]]);
});

test("of very many lines the first are drawn, and all are counted", () => {
  const rows = Array.from({ length: 100 }, (_, at) => [hour(1), `o${at}`, at]);
  const found = seriesOf({ columns: [AT, ORIGIN, COUNT], rows });
  assert.equal(found.lines.length, LINES_MAX);
  assert.equal(found.count, 100);
});

test("bars of one place are side by side, and those of two do not touch", () => {
  const rows = [["JFK", 1, 2], ["LGA", 3, 4]];
  const bars = barsOf(seriesOf({ columns: [ORIGIN, COUNT, MEAN], rows }), String);
  assert.deepEqual(bars.names, ["JFK", "LGA"]);
  assert.deepEqual(bars.places.map((at) => Math.round(at * 6)), [-1, 1, 5, 7]);
  assert.deepEqual(bars.lines, [
    [2, null, 4, null],
    [null, 1, null, 3],
  ]);
});

test("values are written as the server writes them", () => {
  const texts = [null, true, 7, 2.5, 1 / 3, 123456.789, -0.000012345678, "nan", "9007199254740993"];
  assert.deepEqual(texts.map(valueText), [
    "", "true", "7", "2.5", "0.333333", "123456.79", "-0.0000123457", "nan", "9007199254740993",
  ]);
});

test("only numbers are drawn", () => {
  assert.deepEqual([true, "", null, "x", "-inf", 2, "3"].map(numberOf), [null, null, null, null, null, 2, 3]);
});
