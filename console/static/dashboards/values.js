/**
 * Panels of a dashboard as the server sends them, and their values as people read them.
 */

/** @typedef {string | number | boolean | null} Value */

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} type A type of DuckDB.
 * @property {boolean} is_group It says which group a row is.
 * @property {boolean} is_approximate
 */

/**
 * @typedef {object} Panel
 * @property {string} title
 * @property {"lines" | "bars" | "table" | "number"} chart
 * @property {string | null} unit
 * @property {string} fault Why there are no rows; empty if there are.
 * @property {Record<string, number>} mistyped
 * @property {Column[]} columns
 * @property {Value[][]} rows
 */

/**
 * @typedef {object} Numbers What an event has: the panels that have changed.
 * @property {string} layout
 * @property {string} status
 * @property {string | null} as_of
 * @property {{ records: number, seconds: number } | null} lag
 * @property {string[]} troubles
 * @property {Record<string, { sequence: number, stamp: number }>} positions
 * @property {Record<string, Panel>} panels
 */

const LARGE = 100_000;

/**
 * Return a value as the server's pages show it (`console/web/formats.py`).
 * @param {Value} value
 */
export function valueText(value) {
  if (value === null) return "";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(Math.abs(value) >= LARGE ? value.toFixed(2) : value.toPrecision(6)));
}

/**
 * Return a number of a row; null if it is absent, or none that can be drawn.
 * @param {Value} value
 */
export function numberOf(value) {
  if (value === null || typeof value === "boolean" || value === "") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}
