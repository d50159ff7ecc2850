/**
 * The lines and bars of a panel, out of its rows. A bucket without a row is a gap, and no zero.
 */

import { numberOf, valueText } from "./values.js";

/** @typedef {import("./values.js").Panel} Panel */
/** @typedef {import("./values.js").Value} Value */

/**
 * @typedef {object} Series
 * @property {string[]} labels One for each line.
 * @property {(string | number)[]} places Where the values are: Unix seconds, numbers or names.
 * @property {"time" | "number" | "name"} kind What places are.
 * @property {(number | null)[][]} lines The values of each line, one for each place.
 * @property {number} count Lines that there are; some may be left out.
 */

export const LINES_MAX = 16;
const PLACES_MAX = 5000;
const GAP = 1.5;

/**
 * Return the series of a panel: a line for each group and numeric column. Null if no column says
 * where a value is.
 * @param {Panel} panel
 * @returns {Series | null}
 */
export function seriesOf({ columns, rows }) {
  const groups = places(columns, (column) => column.is_group);
  const numbers = places(columns, (column) => !column.is_group && column.type !== "VARCHAR");
  const across = groups.find((at) => columns[at].type === "TIMESTAMP") ?? groups[0];
  if (across === undefined || !numbers.length) return null;
  const others = groups.filter((at) => at !== across);
  const kind = kindOf(columns[across].type);
  /** @type {Map<string | number, Map<string, number | null>>} */
  const found = new Map();
  /** @type {Set<string>} */
  const labels = new Set();
  for (const row of rows) {
    const place = placeOf(row[across], kind);
    if (place === null) continue;
    const group = others.map((at) => valueText(row[at])).join(" ");
    const values = found.get(place) ?? new Map();
    found.set(place, values);
    for (const at of numbers) {
      const label = labelOf(group, numbers.length > 1 || !group ? columns[at].name : "");
      labels.add(label);
      values.set(label, numberOf(row[at]));
    }
  }
  // Lines keep their colours when rows change their order.
  const all = [...labels].sort();
  const shown = all.slice(0, LINES_MAX);
  const at = orderOf([...found.keys()], kind);
  const lines = shown.map((label) => at.map((place) => found.get(place)?.get(label) ?? null));
  return { labels: shown, places: at, kind, lines, count: all.length };
}

/**
 * @param {import("./values.js").Column[]} columns
 * @param {(column: import("./values.js").Column) => boolean} isWanted
 */
function places(columns, isWanted) {
  return columns.map((column, at) => (isWanted(column) ? at : -1)).filter((at) => at >= 0);
}

/** @param {string} type */
function kindOf(type) {
  if (type === "TIMESTAMP") return "time";
  return type === "VARCHAR" || type === "BOOLEAN" ? "name" : "number";
}

/**
 * @param {Value} value
 * @param {"time" | "number" | "name"} kind
 */
function placeOf(value, kind) {
  if (kind === "name") return valueText(value);
  if (kind === "number") return numberOf(value);
  const ms = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isFinite(ms) ? ms / 1000 : null;
}

/**
 * @param {string} group
 * @param {string} column
 */
function labelOf(group, column) {
  return group && column ? `${group} ${column}` : group || column;
}

/**
 * Return places in their order. Names keep that of the rows. Between numbers that are further apart
 * than others there is a place without a value.
 * @param {(string | number)[]} found
 * @param {"time" | "number" | "name"} kind
 */
function orderOf(found, kind) {
  if (kind === "name") return found;
  const numbers = /** @type {number[]} */ (found).sort((one, other) => one - other).slice(-PLACES_MAX);
  const step = smallestStep(numbers);
  /** @type {number[]} */
  const all = [];
  for (const [at, number] of numbers.entries()) {
    if (at && number - numbers[at - 1] > GAP * step) all.push(numbers[at - 1] + step);
    all.push(number);
  }
  return all;
}

/** @param {number[]} numbers In their order. */
function smallestStep(numbers) {
  let step = Infinity;
  for (let at = 1; at < numbers.length; at++) step = Math.min(step, numbers[at] - numbers[at - 1]);
  return step;
}

/**
 * @typedef {object} Bars
 * @property {number[]} places The middle of each bar. Group number n is around n.
 * @property {(number | null)[][]} lines
 * @property {string[]} names One for each group.
 */

/**
 * Return bars side by side: those of one place are a group, with room between groups.
 * @param {Series} series
 * @param {(seconds: number) => string} timeText
 * @returns {Bars}
 */
export function barsOf({ places: at, kind, lines }, timeText) {
  const width = 1 / (lines.length + 1);
  const first = -(width * (lines.length - 1)) / 2;
  const numbers = lines.map((_, line) => line);
  const middles = at.flatMap((_, group) => numbers.map((line) => group + first + line * width));
  const spread = lines.map((values, own) =>
    values.flatMap((value) => numbers.map((line) => (line === own ? value : null))),
  );
  const names = at.map((place) => (kind === "time" ? timeText(Number(place)) : String(place)));
  return { places: middles, lines: spread, names };
}
