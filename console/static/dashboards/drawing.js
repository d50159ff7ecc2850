/**
 * The drawing of one panel: lines, bars, or large numbers. It is made once and moves in place.
 */

import uPlot from "../vendor/uplot.js";
import { axisStyle, COLOURS, lineColour, short } from "../charts/drawing.js";
import { barsOf, seriesOf } from "./series.js";
import { valueText } from "./values.js";

/** @typedef {import("./values.js").Panel} Panel */
/** @typedef {import("./series.js").Series} Series */

const HEIGHT = 240;
const HEIGHT_ON_WALL = 0.3;
const BAR = 0.9;
const BAR_PIXELS_MAX = 60;
const NAME_CHARACTERS = 14;
const DAY_S = 24 * 3600;

export class Drawing {
  /**
   * @param {HTMLElement} place
   * @param {boolean} isWall
   */
  constructor(place, isWall) {
    this.place = place;
    this.isWall = isWall;
    /** @type {uPlot | null} */
    this.plot = null;
    this.form = "";
    /** @type {string[]} The names below groups of bars. */
    this.names = [];
    /** @type {Panel | null} */
    this.panel = null;
    new ResizeObserver(() => this.fit()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
  }

  get height() {
    return this.isWall ? Math.round(innerHeight * HEIGHT_ON_WALL) : HEIGHT;
  }

  fit() {
    this.plot?.setSize({ width: this.place.clientWidth, height: this.height });
  }

  repaint() {
    this.form = "";
    if (this.panel) this.show(this.panel);
  }

  /**
   * Show a panel; return how many lines it has, and how many are drawn.
   * @param {Panel} panel
   * @returns {{ shown: number, count: number }}
   */
  show(panel) {
    this.panel = panel;
    if (panel.chart === "number") {
      this.showNumbers(panel);
      return { shown: 0, count: 0 };
    }
    const series = panel.fault ? null : seriesOf(panel);
    if (!series) {
      this.plot?.destroy();
      this.plot = null;
      return { shown: 0, count: 0 };
    }
    if (panel.chart === "bars") this.showBars(series);
    else this.showLines(series);
    return { shown: series.labels.length, count: series.count };
  }

  /** @param {Panel} panel */
  showNumbers({ columns, rows, unit, fault }) {
    const row = fault ? [] : (rows[0] ?? []);
    const shown = columns.map((_, at) => at).filter((at) => !columns[at].is_group);
    while (this.place.children.length > shown.length) this.place.lastElementChild?.remove();
    for (const [number, at] of shown.entries()) {
      const large = this.place.children[number] ?? this.place.appendChild(newNumber());
      const [value, name] = large.children;
      setText(value, row.length ? valueText(row[at]) : "–");
      setText(name, shown.length > 1 ? columns[at].name : (unit ?? ""));
    }
  }

  /** @param {Series} series */
  showLines({ labels, places, kind, lines }) {
    // Names are in the order of the rows, so a line between them is only one on paper.
    const across = kind === "name" ? places.map((_, at) => at) : /** @type {number[]} */ (places);
    this.names = kind === "name" ? places.map(String) : [];
    const data = /** @type {uPlot.AlignedData} */ ([across, ...lines]);
    this.draw(JSON.stringify([kind, labels]), data, () => this.optionsOf(labels, kind, {}));
  }

  /** @param {Series} series */
  showBars(series) {
    const { places, lines, names } = barsOf(series, timeText);
    this.names = names;
    const makePaths = uPlot.paths.bars;
    if (!makePaths) return;
    const paths = makePaths({ size: [BAR, BAR_PIXELS_MAX] });
    const data = /** @type {uPlot.AlignedData} */ ([places, ...lines]);
    this.draw(JSON.stringify(series.labels), data, () => this.optionsOf(series.labels, "name", { paths }));
  }

  /**
   * Move the plot to other values. A plot with other lines is made anew.
   * @param {string} form
   * @param {uPlot.AlignedData} data
   * @param {() => import("../vendor/uplot.js").Options} makeOptions
   */
  draw(form, data, makeOptions) {
    if (this.plot && form === this.form) {
      this.plot.setData(data);
      return;
    }
    const former = this.plot;
    this.form = form;
    this.plot = new uPlot(makeOptions(), data, this.place);
    former?.destroy();
  }

  /**
   * @param {string[]} labels
   * @param {"time" | "number" | "name"} kind
   * @param {{ paths?: uPlot.Series.PathBuilder }} bars
   * @returns {import("../vendor/uplot.js").Options}
   */
  optionsOf(labels, kind, { paths }) {
    const axis = axisStyle();
    const isBars = Boolean(paths);
    const lines = labels.map((label, at) => ({
      label,
      stroke: lineColour(at),
      width: isBars ? 0 : 2,
      ...(isBars ? { paths, fill: lineColour(at), points: { show: false } } : {}),
      // Lines beyond the colours are broken, so that no two look the same.
      ...(at >= COLOURS && !isBars ? { dash: [3 + 3 * Math.floor(at / COLOURS), 4] } : {}),
    }));
    /** @type {import("../vendor/uplot.js").Options} */
    const options = {
      width: this.place.clientWidth || 600,
      height: this.height,
      series: [{}, ...lines],
      axes: [
        kind === "name" ? { ...axis, ...this.namesAxis() } : { ...axis, values: (_, ticks) => this.tickTexts(ticks, kind) },
        { ...axis, size: 60, values: (_, ticks) => ticks.map(short) },
      ],
      scales: {
        x: kind === "name" ? { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] } : { time: kind === "time" },
        y: { range: (_, low, high) => [Math.min(low ?? 0, 0), Math.max(high ?? 1, 0) * 1.05 || 1] },
      },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { live: false },
      cursor: { drag: { x: false, y: false } },
    };
    return options;
  }

  namesAxis() {
    return {
      splits: () => this.names.map((_, at) => at),
      values: (/** @type {uPlot} */ plot, /** @type {number[]} */ splits) => {
        const fitting = Math.max(1, Math.floor(plot.width / 70));
        const every = Math.max(1, Math.ceil(splits.length / fitting));
        return splits.map((at) => (at % every ? "" : (this.names[at] ?? "").slice(0, NAME_CHARACTERS)));
      },
    };
  }

  /**
   * @param {number[]} ticks
   * @param {"time" | "number"} kind
   */
  tickTexts(ticks, kind) {
    if (kind === "number") return ticks.map(short);
    const isLong = ticks.length > 1 && ticks[ticks.length - 1] - ticks[0] >= DAY_S;
    return ticks.map((tick) => (isLong && tick % DAY_S === 0 ? dayText(tick) : timeText(tick)));
  }
}

function newNumber() {
  const large = document.createElement("p");
  large.className = "large";
  large.append(document.createElement("b"), document.createElement("small"));
  return large;
}

/**
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {number} seconds */
function timeText(seconds) {
  return formatted(seconds, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

/** @param {number} seconds */
function dayText(seconds) {
  return formatted(seconds, { month: "short", day: "numeric" });
}

/**
 * @param {number} seconds
 * @param {Intl.DateTimeFormatOptions} options
 */
function formatted(seconds, options) {
  const language = document.documentElement.lang;
  return new Intl.DateTimeFormat(language, { ...options, timeZone: "UTC" }).format(seconds * 1000);
}
