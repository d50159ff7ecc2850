/**
 * Pages that renew themselves: `<main data-refresh="5">` is fetched again every 5 seconds.
 *
 * The server renders the page; nothing is rendered twice. A page is not renewed while it is hidden,
 * while a person is at one of its fields, or while text is selected in it. If the server does not
 * answer, or the session has ended, the page says since when, and how to go on.
 */

import { fill, settingsOf, timeOfDay } from "./texts.js";

const SECONDS_MAX_UNANSWERED = 8;

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const behind = /** @type {HTMLElement} */ (document.getElementById("behind"));
const seconds = Number(main.dataset.refresh);
let answeredMs = Date.now();

/**
 * Return the page at an address as the server renders it now, also one that says what is wrong.
 * @param {string} url
 * @returns {Promise<Document | null>} Null if the server asks for a log-in: the session has ended.
 */
function fetchPage(url) {
  // XMLHttpRequest parses HTML without running anything, and needs no Trusted Types policy.
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.timeout = SECONDS_MAX_UNANSWERED * 1000;
    request.addEventListener("load", () => {
      const isSame = new URL(request.responseURL).pathname === new URL(url).pathname;
      if (request.status >= 500 || !request.responseXML) reject(new Error(`status ${request.status}`));
      else resolve(isSame ? request.responseXML : null);
    });
    for (const name of ["error", "timeout"]) {
      request.addEventListener(name, () => reject(new Error(name)));
    }
    request.send();
  });
}

function isInUse() {
  const active = document.activeElement;
  const isAtField = active instanceof HTMLElement && active.closest("main form, main dialog");
  const selected = document.getSelection();
  return Boolean(isAtField) || Boolean(selected && !selected.isCollapsed);
}

/**
 * Put a chart back in place of the fresh one, with the fresh one's table.
 * @param {Element} chart
 */
function keepChart(chart) {
  const fresh = document.getElementById(chart.id);
  if (!fresh) return;
  const table = fresh.querySelector("details");
  if (table) chart.querySelector("details")?.replaceWith(table);
  fresh.replaceWith(chart);
}

/** @param {Document} page */
function showPage(page) {
  const fresh = page.querySelector("main");
  if (!fresh) return;
  // What a person has opened or focused stays so, if it has an id.
  const opened = [...main.querySelectorAll("details[open][id]")].map((element) => element.id);
  const focused = main.contains(document.activeElement) ? document.activeElement?.id : "";
  const places = [...main.querySelectorAll(".wide[id]")].map(({ id, scrollTop }) => ({ id, scrollTop }));
  // Charts draw themselves and fetch their own figures. The table of each is the server's.
  const charts = [...main.querySelectorAll("figure.chart[id]")];
  const parts = [...fresh.childNodes].map((node) => document.importNode(node, true));
  main.replaceChildren(...parts);
  for (const chart of charts) keepChart(chart);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  for (const { id, scrollTop } of places) {
    const place = document.getElementById(id);
    if (place) place.scrollTop = scrollTop;
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/**
 * Say that what the page shows is old.
 * @param {"behind" | "logged_out"} key
 */
function showBehind(key) {
  const { texts, language, login } = settingsOf(behind);
  const text = fill(texts, key, { time: timeOfDay(answeredMs, language) });
  if (behind.dataset.shown === text) return; // A link that has the focus keeps it.
  behind.dataset.shown = text;
  behind.replaceChildren(`${text} `);
  if (key === "logged_out") {
    const link = document.createElement("a");
    link.href = login;
    link.textContent = fill(texts, "log_in");
    behind.append(link);
  }
  behind.hidden = false;
}

function hideBehind() {
  answeredMs = Date.now();
  behind.hidden = true;
  delete behind.dataset.shown;
}

async function refresh() {
  if (document.visibilityState === "visible" && !isInUse()) {
    try {
      const page = await fetchPage(location.href.split("#")[0]);
      if (!page) showBehind("logged_out");
      else {
        hideBehind();
        if (!isInUse()) showPage(page);
      }
    } catch {
      showBehind("behind");
    }
  }
  setTimeout(refresh, seconds * 1000);
}

if (seconds) setTimeout(refresh, seconds * 1000);
