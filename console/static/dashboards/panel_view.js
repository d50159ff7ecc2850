/**
 * One panel of the page: its drawing and its table, which the server has rendered. Cells whose
 * value has changed get another text; nothing else is touched.
 */

import { fill } from "../texts.js";
import { Drawing, setText } from "./drawing.js";
import { valueText } from "./values.js";

/** @typedef {import("./values.js").Panel} Panel */
/** @typedef {import("./values.js").Value} Value */

export class PanelView {
  /**
   * @param {HTMLElement} section
   * @param {{ texts: import("../texts.js").Texts, rowsMax: number, isWall: boolean }} settings
   */
  constructor(section, { texts, rowsMax, isWall }) {
    this.texts = texts;
    this.rowsMax = rowsMax;
    this.fault = find(section, ".fault");
    this.numbers = find(section, ".numbers");
    this.body = /** @type {HTMLTableSectionElement} */ (find(section, ".numbers tbody"));
    this.more = find(section, ".more");
    this.mistyped = find(section, ".mistyped");
    this.leftOut = document.createElement("p");
    this.leftOut.className = "quiet";
    const place = /** @type {HTMLElement | null} */ (section.querySelector(".drawing"));
    this.drawing = place && new Drawing(place, isWall);
    place?.after(this.leftOut);
    // Without a drawing the table is open; beside one it says the same.
    if (place && !isWall) this.numbers.removeAttribute("open");
  }

  /** @param {Panel} panel */
  show(panel) {
    this.fault.hidden = !panel.fault;
    const reason = panel.fault && this.texts[`fault_${panel.fault.replaceAll(" ", "_")}`];
    setText(this.fault, panel.fault ? fill(this.texts, "no_numbers", { reason: reason ?? panel.fault }) : "");
    this.showRows(panel.rows.slice(0, this.rowsMax));
    const count = panel.rows.length;
    this.more.hidden = count <= this.rowsMax;
    setText(this.more, fill(this.texts, "more_rows", { shown: this.rowsMax, count }));
    const mistyped = Object.entries(panel.mistyped);
    setText(this.mistyped, mistyped.map(([column, n]) => fill(this.texts, "mistyped", { column, count: n })).join(" "));
    const drawn = this.drawing?.show(panel);
    const isLeftOut = Boolean(drawn && drawn.count > drawn.shown);
    setText(this.leftOut, drawn && isLeftOut ? fill(this.texts, "series_left_out", drawn) : "");
  }

  /** @param {Value[][]} rows */
  showRows(rows) {
    const { body } = this;
    while (body.rows.length > rows.length) body.deleteRow(-1);
    for (const [at, values] of rows.entries()) {
      const row = body.rows[at] ?? body.insertRow();
      for (const [place, value] of values.entries()) {
        const cell = row.cells[place] ?? row.insertCell();
        setText(cell, valueText(value));
        cell.classList.toggle("number", typeof value === "number");
      }
    }
  }
}

/**
 * @param {HTMLElement} section
 * @param {string} selector
 */
function find(section, selector) {
  return /** @type {HTMLElement} */ (section.querySelector(selector));
}
