/**
 * A feed over a connection of its own: Server-Sent Events over fetch. Used where a proxy lets no
 * WebSocket through (`feed_socket.js`).
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
  const lost = { status: 0, reason: "", after: 0 };
  const headers = { Accept: "text/event-stream" };
  /** @type {ReadableStreamDefaultReader<Uint8Array>} */
  let reader;
  try {
    const answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
    if (answer.status !== 200 || !answer.body) return await refusalOf(answer);
    reader = answer.body.getReader();
  } catch {
    return lost;
  }
  ends.onOpen();
  const parser = new EventParser();
  for (;;) {
    const bytes = await readBytes(reader);
    if (!bytes || signal.aborted) return lost;
    for (const event of parser.feed(bytes)) {
      if (!signal.aborted) ends.onEvent(event);
    }
  }
}

/**
 * Return the next bytes; undefined at the end, and if the connection is lost.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 */
async function readBytes(reader) {
  try {
    return (await reader.read()).value;
  } catch {
    return undefined;
  }
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
