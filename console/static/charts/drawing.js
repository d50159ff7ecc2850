/**
 * What all charts have in common: colours of the theme, and numbers in few characters.
 */

/** As many colours as style.css has for lines. */
export const COLOURS = 4;

/** @param {string} name */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** @param {number} at The place of a line in its chart. */
export function lineColour(at) {
  return colour(`--line-${(at % COLOURS) + 1}`);
}

export function axisStyle() {
  return { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false } };
}

/** @param {number} value */
export function short(value) {
  return new Intl.NumberFormat(document.documentElement.lang, {
    notation: "compact",
    maximumFractionDigits: 1,
  }).format(value);
}
