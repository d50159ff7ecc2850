/**
 * The live page: the newest changes of a table, with pause, and one record before and after.
 */

import { FeedClient } from "../feed_client.js";
import { fill, settingsOf, timeOfDay } from "../texts.js";
import { html, render, signal } from "../vendor/preact.js";
import { compareColumns, RecordList } from "./record_list.js";
import { textOf, typeOf } from "./values.js";

/** @typedef {import("../feed_connection.js").FeedState} FeedState */
/** @typedef {import("./record_list.js").FeedRecord} FeedRecord */
/** @typedef {import("./record_list.js").Item} Item */
/** @typedef {import("./values.js").Value} Value */

const COLUMNS_SHOWN = 4;
const CHARACTERS_SHOWN = 40;

const root = /** @type {HTMLElement} */ (document.getElementById("live"));
const { path, token, worker, texts, language, login } = settingsOf(root);
const list = new RecordList();
const beganMs = Date.now();

/** Counts what the list took, so that the page draws it again. */
const drawn = signal(0);
/** @type {import("../vendor/preact.js").Signal<FeedState>} */
const state = signal({ name: "connecting", since: 0, reason: "", oldest: "" });
/** @type {import("../vendor/preact.js").Signal<Item | null>} */
const chosen = signal(null);
/** True while the page is paused and what it could hold is exceeded. */
const isLeft = signal(false);

/**
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
const t = (key, values) => fill(texts, key, values);

const client = new FeedClient({ path, token, worker, onMessage: takeMessage });

/** @param {import("../feed_hub.js").HubMessage} message */
function takeMessage({ event, state: shown }) {
  if (shown) state.value = shown;
  if (!event) return;
  if (!list.take(event)) {
    isLeft.value = true;
    client.leave();
  }
  drawSoon();
}

/** A page rests so many times as long as it drew: it takes four fifths of a processor at most. */
const RESTS = 0.25;
const DRAW_MS_MAX = 50;
const painted = new MessageChannel();
let isDrawing = false;
let drawMs = 0;
let drawnMs = 0;
painted.port1.onmessage = ({ data: began }) => {
  drawnMs = performance.now();
  drawMs = Math.min(drawnMs - began, DRAW_MS_MAX);
};

/** Draw with one of the browser's next pictures: several frames may share it. */
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  const rest = drawnMs + RESTS * drawMs - performance.now();
  if (rest > 0) setTimeout(() => requestAnimationFrame(draw), rest);
  else requestAnimationFrame(draw);
}

function draw() {
  isDrawing = false;
  drawn.value += 1;
  // A task that is posted here runs once the picture was painted.
  painted.port2.postMessage(performance.now());
}

function togglePause() {
  if (list.isPaused) {
    list.resume();
    // What could not be held is read again, from where the page was paused.
    if (isLeft.value) client.join(list.token);
    isLeft.value = false;
  } else {
    list.pause();
  }
  keepInAddress(list.isPaused ? list.token : "");
  drawn.value += 1;
}

/**
 * Keep the position of a paused page in its address, so that a copy of it shows the same.
 * @param {string} position
 */
function keepInAddress(position) {
  const url = new URL(location.href);
  if (position) url.searchParams.set("after", position);
  else url.searchParams.delete("after");
  history.replaceState(null, "", url);
}

/** @param {string} oldest */
function continueAtOldest(oldest) {
  client.join(oldest);
}

function Status() {
  const { name, since, reason, oldest } = state.value;
  if (isLeft.value) return html`<p class="notice">${t("paused_left")}</p>`;
  if (name === "live") {
    return html`<p class="good"><span class="dot" aria-hidden="true"></span> ${t("state_live")}</p>`;
  }
  if (name === "connecting") return html`<p class="quiet">${t("state_connecting")}</p>`;
  const time = timeOfDay(since || beganMs, language);
  if (name === "logged_out") {
    return html`<p class="problem">
      ${t("behind", { time })} ${t("logged_out")} <a href=${login} target="_blank">${t("log_in")}</a>
    </p>`;
  }
  if (name === "behind") return html`<p class="problem">${t("behind", { time })} <span lang="en">${reason}</span></p>`;
  if (!oldest) return html`<p class="problem">${t("over")} <span lang="en">${reason}</span></p>`;
  return html`<p class="problem">
    ${t("expired")}
    <button type="button" onClick=${() => continueAtOldest(oldest)}>${t("from_oldest")}</button>
  </p>`;
}

function Controls() {
  void drawn.value;
  const { shown, leftOut, isPaused, heldCount } = list;
  return html`<div class="controls">
    <button type="button" aria-pressed=${isPaused} onClick=${togglePause}>
      ${isPaused ? t("resume") : t("pause")}
    </button>
    <p class="quiet" id="counts" data-shown=${shown} data-left-out=${leftOut}>
      ${t("counts", { shown, left_out: leftOut })} ${isPaused && t("held", { count: heldCount })}
    </p>
  </div>`;
}

/** @param {Record<string, Value>} columns */
function nameValues(columns) {
  const names = Object.keys(columns);
  const shown = names.slice(0, COLUMNS_SHOWN).map(
    (name) => html`<span class="pair"><b>${name}</b> ${textOf(columns[name], CHARACTERS_SHOWN)}</span> `,
  );
  const more = names.length - COLUMNS_SHOWN;
  return html`${shown}${more > 0 && html`<span class="quiet">${t("more_columns", { count: more })}</span>`}`;
}

/**
 * A row of the list. It is made once: a component that reads a signal is drawn again only when that
 * signal or its properties change.
 *
 * Keep no row's markup elsewhere. Preact links it to the list that it was first drawn in, and so to
 * the rows before it: not one of them would ever be forgotten.
 * @param {{ item: Item }} properties
 */
function Line({ item }) {
  const isChosen = chosen.value === item;
  return item.record ? recordLine(item, item.record, isChosen) : gapLine(item);
}

/** @param {Item} item */
function gapLine({ leftOut }) {
  return html`<tr class="gap">
    <td colspan="4">${t("left_out", { count: leftOut })}</td>
  </tr>`;
}

/**
 * @param {Item} item
 * @param {FeedRecord} record
 * @param {boolean} isChosen
 */
function recordLine(item, record, isChosen) {
  const { kind, key, columns, removed = [], stamp } = record;
  const keyText = Object.values(key).map((value) => textOf(value)).join(", ");
  return html`<tr data-stamp=${stamp} aria-current=${isChosen ? "true" : null}>
    <td class="number">${stamp ? timeOfDay(stamp / 1000, language) : ""}</td>
    <td><span class=${`badge ${kind}`}>${t(`kind_${kind}`)}</span></td>
    <td><button type="button" class="link" onClick=${() => (chosen.value = item)}>${keyText}</button></td>
    <td>
      ${nameValues(columns ?? {})}
      ${removed.map((name) => html`<span class="pair"><b>${name}</b> <s>${t("absent")}</s></span> `)}
    </td>
  </tr>`;
}

function Records() {
  void drawn.value;
  return html`<div class="wide" tabindex="0" role="region" aria-label=${t("changes")}>
    <table class="records">
      <thead>
        <tr>
          <th scope="col">${t("time")}</th>
          <th scope="col">${t("kind")}</th>
          <th scope="col">${t("key")}</th>
          <th scope="col">${t("columns")}</th>
        </tr>
      </thead>
      <tbody>
        ${list.items.map((item) => html`<${Line} key=${item.number} item=${item} />`)}
      </tbody>
    </table>
    ${!list.items.length && html`<p class="quiet">${t("nothing_yet")}</p>`}
  </div>`;
}

/** @param {{ value: Value | undefined }} properties */
function Cell({ value }) {
  if (value === undefined) return html`<span class="quiet">${t("absent")}</span>`;
  if (value === null) return html`<span class="quiet">${t("hidden")}</span>`;
  return html`<span class="value">${textOf(value)}</span> <small>${t(`type_${typeOf(value)}`)}</small>`;
}

function Detail() {
  const record = chosen.value?.record;
  if (!record) return html`<p class="quiet">${t("choose")}</p>`;
  const hasBefore = Boolean(record.before);
  const key = Object.entries(record.key);
  return html`<article aria-label=${t("detail")}>
    <header>
      <span class=${`badge ${record.kind}`}>${t(`kind_${record.kind}`)}</span>${" "}
      ${key.map(([name, value]) => html`<span class="pair"><b>${name}</b> ${textOf(value)}</span> `)}
      <button type="button" class="link" onClick=${() => (chosen.value = null)}>${t("close")}</button>
    </header>
    ${!hasBefore && html`<p class="quiet">${t("no_before")}</p>`}
    <div class="wide" tabindex="0" role="region" aria-label=${t("detail")}>
      <table>
        <thead>
          <tr>
            <th scope="col">${t("column")}</th>
            ${hasBefore && html`<th scope="col">${t("before")}</th>`}
            <th scope="col">${t("after")}</th>
          </tr>
        </thead>
        <tbody>
          ${compareColumns(record)
            .slice(0, COLUMNS_COMPARED_MAX)
            .map(
              (column) =>
                html`<tr class=${hasBefore && column.isChanged ? "changed" : ""}>
                  <th scope="row">${column.name}</th>
                  ${hasBefore && html`<td><${Cell} value=${column.before} /></td>`}
                  <td><${Cell} value=${column.after} /></td>
                </tr>`,
            )}
        </tbody>
      </table>
    </div>
  </article>`;
}

/** With the rows of the list, less than 200 in the page. */
const COLUMNS_COMPARED_MAX = 40;

function Page() {
  return html`<div role="status"><${Status} /></div>
    <${Controls} />
    <div class="beside">
      <${Records} />
      <section aria-live="polite"><${Detail} /></section>
    </div>`;
}

root.replaceChildren();
render(html`<${Page} />`, root);
client.join();
