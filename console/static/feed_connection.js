/**
 * One feed that goes on: it reconnects by its token, and knows since when it is behind.
 *
 * The server sends an event every 5 seconds at least. A feed that has none for longer is behind.
 * Times are milliseconds. Nothing here knows pages; `feed_hub.js` shares connections among them.
 */

/** @typedef {import("./feed_events.js").FeedEvent} FeedEvent */

/**
 * @typedef {object} FeedState What is known of a connection.
 * @property {"connecting" | "live" | "behind" | "logged_out" | "over"} name
 * @property {number} since When the last event came; 0 if none has come.
 * @property {string} reason Why it is over, or why it is behind, in the server's words.
 * @property {string} oldest The oldest token that the server keeps, if ours is older.
 */

/**
 * @typedef {object} Refusal Why a transport has ended.
 * @property {number} status The HTTP status; 0 if the connection was lost.
 * @property {string} reason
 * @property {number} after How long to wait before the next attempt, as the server says; or 0.
 */

/**
 * @typedef {object} TransportEnds What a transport calls.
 * @property {() => void} onOpen
 * @property {(event: FeedEvent) => void} onEvent
 * @property {(refusal: Refusal) => void} onEnd Once, and never after `close`.
 */

/** @typedef {(path: string, ends: TransportEnds) => { close(): void }} Transport */

export const SILENCE_MS_MAX = 8000;
const WATCH_MS = 500;
const PAUSE_MS_MIN = 250;
const PAUSE_MS_MAX = 3000;
/** Answers with these statuses may change; all others of 400 to 499 end the feed. */
const MAY_CHANGE = new Set([401, 408, 425, 429]);

export class FeedConnection {
  /**
   * @param {object} options
   * @param {string} options.path The feed with its query, without a token.
   * @param {string} options.token Where to begin; empty: where the path says.
   * @param {Transport} options.transport
   * @param {(event: FeedEvent) => void} options.onEvent
   * @param {(state: FeedState) => void} options.onState
   */
  constructor({ path, token, transport, onEvent, onState }) {
    this.path = path;
    this.token = token;
    this.transport = transport;
    this.onEvent = onEvent;
    this.onState = onState;
    /** @type {FeedState} */
    this.state = { name: "connecting", since: 0, reason: "", oldest: "" };
    this.pause = PAUSE_MS_MIN;
    this.heard = Date.now();
    /** @type {{ close(): void } | null} */
    this.open = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retry = undefined;
    this.watch = setInterval(() => this.lookForSilence(), WATCH_MS);
    this.connect();
  }

  connect() {
    clearTimeout(this.retry);
    this.heard = Date.now();
    const url = this.token ? withToken(this.path, this.token) : this.path;
    this.open = this.transport(url, {
      onOpen: () => (this.heard = Date.now()),
      onEvent: (event) => this.take(event),
      onEnd: (refusal) => this.endTransport(refusal),
    });
  }

  close() {
    clearTimeout(this.retry);
    clearInterval(this.watch);
    this.open?.close();
    this.open = null;
  }

  /** @param {FeedEvent} event */
  take(event) {
    this.heard = Date.now();
    this.pause = PAUSE_MS_MIN;
    if (event.name === "expired") {
      this.finish(event.data.reason, event.data.oldest);
      return;
    }
    if (event.id) this.token = event.id;
    if (event.name === "behind") {
      const { behind_s: seconds, reason } = event.data;
      this.show({ name: "behind", since: this.heard - seconds * 1000, reason, oldest: "" });
      return;
    }
    if (event.name === "end" && event.data.code !== "server_stops") {
      this.finish(event.data.reason, "");
      return;
    }
    if (event.name === "slow" || event.name === "end") {
      this.again(this.pause, event.data.reason);
      return;
    }
    this.show({ name: "live", since: this.heard, reason: "", oldest: "" });
    this.onEvent(event);
  }

  /** @param {Refusal} refusal */
  endTransport({ status, reason, after }) {
    this.open = null;
    if (status === 204) this.finish(reason, "");
    else if (status >= 400 && status < 500 && !MAY_CHANGE.has(status)) this.finish(reason, "");
    else {
      if (status === 401) this.show({ ...this.state, name: "logged_out", reason });
      this.again(Math.max(this.pause, after), reason);
    }
  }

  /**
   * Connect again after a pause, which grows while nothing is heard.
   * @param {number} pause
   * @param {string} reason
   */
  again(pause, reason) {
    this.open?.close();
    this.open = null;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), pause);
    this.pause = Math.min(this.pause * 2, PAUSE_MS_MAX);
    if (this.state.name === "live" || this.state.name === "connecting") {
      this.show({ ...this.state, name: "behind", reason });
    }
  }

  lookForSilence() {
    if (Date.now() - this.heard < SILENCE_MS_MAX || !this.open) return;
    this.again(0, "");
  }

  /**
   * @param {string} reason
   * @param {string} oldest
   */
  finish(reason, oldest) {
    this.close();
    this.show({ name: "over", since: this.state.since, reason, oldest });
  }

  /** @param {FeedState} state */
  show(state) {
    const isNew = state.name !== this.state.name || state.reason !== this.state.reason;
    this.state = state;
    if (isNew) this.onState(state);
  }
}

/**
 * @param {string} path
 * @param {string} token
 */
function withToken(path, token) {
  return `${path}${path.includes("?") ? "&" : "?"}after=${encodeURIComponent(token)}`;
}
