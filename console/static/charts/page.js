/**
 * Charts of a page: `<figure class="chart" data-chart="URL" data-series="NAME">`.
 *
 * The server renders the same figures as a table beside each chart, for those who cannot see it.
 * A chart fetches its figures from the page's own `.json` every few seconds.
 */

import uPlot from "../vendor/uplot.js";
import { axisStyle, lineColour, short } from "./drawing.js";

/**
 * @typedef {object} ChartData
 * @property {string} unit
 * @property {number[]} seconds Unix times.
 * @property {{ label: string, values: (number | null)[] }[]} lines
 */

const HEIGHT = 190;
const EVERY_MS = 5000;
/**
 * @param {ChartData} chart
 * @param {number} width
 * @returns {import("../vendor/uplot.js").Options}
 */
function optionsOf(chart, width) {
  const axis = axisStyle();
  const lines = chart.lines.map(({ label }, at) => ({
    label,
    stroke: lineColour(at),
    width: 2,
    points: { show: false },
  }));
  return {
    width,
    height: HEIGHT,
    series: [{}, ...lines],
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(timeOf) },
      { ...axis, size: 60, values: (_, ticks) => ticks.map(short) },
    ],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: { y: { range: (_, low, high) => [Math.min(low ?? 0, 0), Math.max(high ?? 1, 1) * 1.05] } },
    legend: { live: false },
    cursor: { drag: { x: false, y: false } },
  };
}

/** @param {number} seconds */
function timeOf(seconds) {
  return new Intl.DateTimeFormat(document.documentElement.lang, {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZone: "UTC",
  }).format(seconds * 1000);
}

class Chart {
  /** @param {HTMLElement} figure */
  constructor(figure) {
    this.figure = figure;
    this.url = figure.dataset.chart ?? "";
    this.name = figure.dataset.series ?? "";
    this.place = document.createElement("div");
    // The table beside says the same: a screen reader need not meet the drawing.
    this.place.setAttribute("aria-hidden", "true");
    const caption = figure.querySelector("figcaption");
    if (caption) caption.after(this.place);
    else figure.prepend(this.place);
    /** @type {uPlot | null} */
    this.plot = null;
    this.labels = "";
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  fit() {
    this.plot?.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }

  /** @param {ChartData} chart */
  show(chart) {
    const data = /** @type {uPlot.AlignedData} */ ([chart.seconds, ...chart.lines.map((line) => line.values)]);
    const labels = JSON.stringify(chart.lines.map((line) => line.label));
    if (this.plot && labels === this.labels) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.labels = labels;
    this.plot = new uPlot(optionsOf(chart, this.place.clientWidth || 600), data, this.place);
  }

  /** Draw with the colours of the theme that is chosen now. */
  repaint() {
    this.labels = "";
  }
}

const charts = [...document.querySelectorAll("figure.chart")].map(
  (figure) => new Chart(/** @type {HTMLElement} */ (figure)),
);

async function refresh() {
  if (document.visibilityState === "visible") {
    const urls = new Set(charts.map((chart) => chart.url));
    await Promise.all([...urls].map(refreshFrom));
  }
  setTimeout(refresh, EVERY_MS);
}

/** @param {string} url */
async function refreshFrom(url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const found = (await answer.json()).charts ?? {};
    for (const chart of charts) {
      if (chart.url === url && found[chart.name]) chart.show(found[chart.name]);
    }
  } catch {
    // The server does not answer. The page says so; the chart stays as it is.
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.repaint();
});
if (charts.length) refresh();
