/**
 * The page of a dashboard: it follows the numbers and moves its panels in place.
 *
 * Numbers are state: after a pause the page gets the present ones, and nothing of what was between.
 * A page that nobody sees leaves the connection, because a browser has only six to one server. On a
 * wall it goes on for days: it reconnects, also after a refusal, and loads itself again if the
 * server has another form of it.
 */

import { FeedConnection } from "../feed_connection.js";
import { fetchFeed } from "../feed_transport.js";
import { fill, settingsOf, timeOfDay } from "../texts.js";
import { setText } from "./drawing.js";
import { PanelView } from "./panel_view.js";

/** @typedef {import("../feed_connection.js").FeedState} FeedState */
/** @typedef {import("./values.js").Numbers} Numbers */

const AGAIN_MS = 30_000;
/** A dashboard that is behind by more than this says since when. */
const BEHIND_S = 5;
/** A page is loaded again at most so often, whatever the server says. */
const RELOAD_MS_MIN = 5000;

const root = /** @type {HTMLElement} */ (document.getElementById("dashboard"));
const { path, layout, rows_max: rowsMax, is_wall: isWall, texts, language, login } = settingsOf(root);
const behind = /** @type {HTMLElement} */ (document.getElementById("behind"));
const beganMs = Date.now();

/** @type {Map<string, PanelView>} */
const views = new Map();
for (const section of root.querySelectorAll("section[data-panel]")) {
  const element = /** @type {HTMLElement} */ (section);
  views.set(element.dataset.panel ?? "", new PanelView(element, { texts, rowsMax, isWall }));
}

/**
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
const t = (key, values) => fill(texts, key, values);

/** @type {FeedConnection | null} */
let connection = null;
let token = "";
/** What the numbers say of themselves: since when they lack changes. */
let lagMs = 0;
/** @type {FeedState} */
let state = { name: "connecting", since: 0, reason: "", oldest: "" };

function connect() {
  connection?.close();
  connection = new FeedConnection({
    path,
    token,
    transport: fetchFeed,
    onEvent: ({ name, id, data }) => {
      if (id) token = id;
      if (name === "numbers") show(data);
    },
    onState: showState,
  });
}

/** @param {Numbers} numbers */
function show(numbers) {
  if (numbers.layout !== layout) {
    reload();
    return;
  }
  for (const [name, panel] of Object.entries(numbers.panels)) views.get(name)?.show(panel);
  const { status, as_of: asOf, lag, positions, troubles } = numbers;
  showPart("status", t(`state_${status.replaceAll(" ", "_")}`));
  document.getElementById("status")?.classList.toggle("good", status === "ready");
  document.getElementById("status")?.classList.toggle("warn", status !== "ready");
  showPart("as-of", t("as_of", { time: asOf ?? "-" }));
  showPart("lag", lag?.records ? t("behind", { count: lag.records }) : "");
  lagMs = lag && lag.seconds > BEHIND_S ? Date.now() - lag.seconds * 1000 : 0;
  const places = Object.entries(positions).map(([shard, { sequence }]) => t("position", { shard, sequence }));
  showLines(document.querySelector("#positions ul"), "li", places);
  showLines(document.getElementById("troubles"), "p", troubles);
  showBehind();
}

/**
 * @param {string} id
 * @param {string} text
 */
function showPart(id, text) {
  const element = document.getElementById(id);
  if (element) setText(element, text);
}

/**
 * @param {Element | null} place
 * @param {"li" | "p"} tag
 * @param {string[]} lines
 */
function showLines(place, tag, lines) {
  if (!place) return;
  while (place.children.length > lines.length) place.lastElementChild?.remove();
  for (const [at, text] of lines.entries()) {
    const line = place.children[at] ?? place.appendChild(document.createElement(tag));
    if (tag === "p") {
      line.className = "problem";
      line.setAttribute("lang", "en");
    }
    setText(line, text);
  }
}

/** @param {FeedState} shown */
function showState(shown) {
  state = shown;
  showBehind();
  if (state.name === "over" && isWall) setTimeout(connect, AGAIN_MS);
}

/** Say since when the numbers are old, and why. */
function showBehind() {
  const { name, since, reason } = state;
  const time = timeOfDay(since || beganMs, language);
  /** @type {(string | Node)[]} */
  let parts = [];
  if (name === "logged_out") parts = [t("logged_out", { time }), " ", loginLink()];
  else if (name === "behind") parts = [t("behind_since", { time }), " ", english(reason)];
  else if (name === "over") parts = [t("over"), " ", english(reason)];
  else if (lagMs) parts = [t("lag_since", { time: timeOfDay(lagMs, language).replace(/[.,]\d+$/, "") })];
  const text = parts.map((part) => (typeof part === "string" ? part : part.textContent)).join("");
  if (behind.textContent !== text) behind.replaceChildren(...parts);
  behind.hidden = !text;
}

function loginLink() {
  const link = document.createElement("a");
  link.href = login;
  link.textContent = t("log_in");
  return link;
}

/** @param {string} text */
function english(text) {
  const part = document.createElement("span");
  part.lang = "en";
  part.textContent = text;
  return part;
}

function reload() {
  connection?.close();
  setTimeout(() => location.reload(), Math.max(0, RELOAD_MS_MIN - (Date.now() - beganMs)));
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") connect();
  else connection?.close();
});
connect();
