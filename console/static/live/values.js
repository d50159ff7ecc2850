/**
 * Values of columns as people read them. Integers, doubles, texts and bytes stay apart.
 *
 * JSON has fewer types than a cell: bytes come as {"base64"}, integers that a double cannot hold as
 * {"int"}, doubles that JSON lacks or that look like integers as {"double"}.
 */

export const TEXT_MAX = 300;

/** @typedef {string | number | boolean | { base64: string } | { int: string } | { double: string }} Scalar */
/** @typedef {Scalar | null} Value A key column that the console hides is null. */

/**
 * @param {Scalar} value
 * @returns {"text" | "int" | "double" | "bool" | "bytes"}
 */
export function typeOf(value) {
  if (typeof value === "string") return "text";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "double";
  if ("base64" in value) return "bytes";
  return "int" in value ? "int" : "double";
}

/**
 * Return a value in so many characters at most, without characters that cannot be seen.
 * @param {Value} value
 */
export function textOf(value, most = TEXT_MAX) {
  if (value === null) return "•••";
  if (typeof value === "string") return shorten(visible(value.slice(0, most + 1)), most);
  if (typeof value !== "object") return String(value);
  if ("base64" in value) return shorten(value.base64, most);
  return "int" in value ? value.int : value.double;
}

/**
 * @param {string} text
 * @param {number} most
 */
function shorten(text, most) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/**
 * Write characters that cannot be seen, or that turn the direction of a line, as \u{...}.
 * @param {string} text
 */
function visible(text) {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
