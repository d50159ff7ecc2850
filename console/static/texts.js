/**
 * The texts of a page, which the server puts into an attribute of the page.
 */

/** @typedef {Record<string, string>} Texts */

/**
 * Return what the server wrote into the attribute `data-settings` of an element.
 * @param {HTMLElement} element
 * @returns {any}
 */
export function settingsOf(element) {
  return JSON.parse(element.dataset.settings ?? "{}");
}

/**
 * Return a text with its placeholders filled.
 * @param {Texts} texts
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function fill(texts, key, values = {}) {
  const text = texts[key];
  if (text === undefined) throw new Error(`there is no text ${key}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/**
 * Return a time of day to the millisecond, in UTC as everywhere in the console.
 * @param {number} ms Milliseconds since 1970.
 * @param {string} language
 */
export function timeOfDay(ms, language) {
  return formatOf(language).format(ms);
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @param {string} language */
function formatOf(language) {
  let format = formats.get(language);
  if (!format) {
    format = new Intl.DateTimeFormat(language, {
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      fractionalSecondDigits: 3,
      hourCycle: "h23",
      timeZone: "UTC",
    });
    formats.set(language, format);
  }
  return format;
}
