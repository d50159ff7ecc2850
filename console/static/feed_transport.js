/**
 * How the bytes of a feed arrive: Server-Sent Events over fetch.
 */

import { EventParser } from "./feed_events.js";

/** @typedef {import("./feed_connection.js").Refusal} Refusal */
/** @typedef {import("./feed_connection.js").TransportEnds} TransportEnds */

/**
 * Open a feed and return what closes it.
 * @type {import("./feed_connection.js").Transport}
 */
export function fetchFeed(path, ends) {
  const control = new AbortController();
  readFeed(path, ends, control.signal).then((refusal) => {
    if (!control.signal.aborted) ends.onEnd(refusal);
  });
  return { close: () => control.abort() };
}

/**
 * Pass on a feed's events until it ends, and return why it did.
 * @param {string} path
 * @param {TransportEnds} ends
 * @param {AbortSignal} signal
 * @returns {Promise<Refusal>}
 */
async function readFeed(path, ends, signal) {
  try {
    const headers = { Accept: "text/event-stream" };
    const answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
    if (answer.status !== 200 || !answer.body) return await refusalOf(answer);
    ends.onOpen();
    const parser = new EventParser();
    const reader = answer.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) break;
      for (const event of parser.feed(value)) {
        if (!signal.aborted) ends.onEvent(event);
      }
    }
  } catch {
    // The connection is lost, or was refused. The next attempt shows which.
  }
  return { status: 0, reason: "", after: 0 };
}

/**
 * @param {Response} answer
 * @returns {Promise<Refusal>}
 */
async function refusalOf(answer) {
  const after = Number(answer.headers.get("Retry-After") ?? 0) * 1000;
  const text = await answer.text();
  let reason = text;
  try {
    reason = JSON.parse(text).error.message;
  } catch {
    // A proxy answered; its text is all that there is.
  }
  return { status: answer.status, reason: reason.slice(0, 500), after };
}
