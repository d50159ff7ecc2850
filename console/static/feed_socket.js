/**
 * All feeds of a browser over one WebSocket, so that its limit of six connections does not matter.
 *
 * A feed is opened and closed by a message; each event names its feed. A WebSocket that cannot be
 * opened does not say why: then a plain request for the feed finds out. If that one is answered, a
 * proxy lacks WebSockets, and the feed has a connection of its own.
 */

import { fetchFeed } from "./feed_transport.js";

/** @typedef {import("./feed_connection.js").TransportEnds} TransportEnds */

/**
 * @typedef {object} SocketFeed
 * @property {string} path
 * @property {TransportEnds} ends
 */

const SILENCE_MS_MAX = 7000;
const LOST = { status: 0, reason: "", after: 0 };
/** After these events the server has forgotten the feed's name. */
const LAST_EVENTS = new Set(["end", "expired", "slow", "error"]);

export class FeedSocket {
  /**
   * @param {string} address
   * @param {(address: string) => WebSocket} makeSocket
   */
  constructor(address, makeSocket = (url) => new WebSocket(url)) {
    this.address = address;
    this.makeSocket = makeSocket;
    /** @type {Map<string, SocketFeed>} */
    this.feeds = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isOpen = false;
    this.heard = 0;
    this.number = 0;
    /** True if WebSockets do not reach the server. */
    this.isUnable = false;
  }

  /**
   * Open a feed and return what closes it.
   * @type {import("./feed_connection.js").Transport}
   */
  open = (path, ends) => {
    if (this.isUnable) return fetchFeed(path, ends);
    const name = String(++this.number);
    this.feeds.set(name, { path, ends });
    if (this.socket && Date.now() - this.heard > SILENCE_MS_MAX) this.drop();
    if (!this.socket) this.connect();
    else if (this.isOpen) this.say({ open: name, path });
    return { close: () => this.close(name) };
  };

  /** @param {string} name */
  close(name) {
    if (!this.feeds.delete(name)) return;
    if (this.isOpen) this.say({ close: name });
    if (!this.feeds.size) this.drop();
  }

  connect() {
    const socket = this.makeSocket(this.address);
    this.socket = socket;
    this.heard = Date.now();
    socket.addEventListener("open", () => {
      if (socket !== this.socket) return;
      this.isOpen = true;
      this.heard = Date.now();
      for (const [name, { path }] of this.feeds) this.say({ open: name, path });
    });
    socket.addEventListener("message", ({ data }) => {
      if (socket === this.socket) this.take(JSON.parse(data));
    });
    socket.addEventListener("close", () => {
      if (socket === this.socket) this.lose();
    });
  }

  /** @param {object} message */
  say(message) {
    this.socket?.send(JSON.stringify(message));
  }

  /** Forget the connection; feeds that are open belong to the next one. */
  drop() {
    const { socket } = this;
    this.socket = null;
    this.isOpen = false;
    socket?.close();
  }

  /** @param {{ feed: string, event: string, id?: string, data?: any }} message */
  take({ feed: name, event, id = "", data }) {
    this.heard = Date.now();
    const feed = this.feeds.get(name);
    if (!feed) return;
    if (LAST_EVENTS.has(event)) this.feeds.delete(name);
    if (event === "error") {
      const after = Number(data.retry_after_s ?? 0) * 1000;
      feed.ends.onEnd({ status: data.status, reason: data.message, after });
    } else {
      const isNameless = event === "records" || event === "position";
      feed.ends.onEvent({ name: isNameless ? "" : event, id, data });
    }
    if (!this.feeds.size) this.drop();
  }

  /** End all feeds of a connection that is lost, or find out why there is none. */
  lose() {
    const wasOpen = this.isOpen;
    const feeds = [...this.feeds.values()];
    this.feeds.clear();
    this.drop();
    for (const { path, ends } of feeds) {
      if (wasOpen) ends.onEnd(LOST);
      else this.findReason(path, ends);
    }
  }

  /**
   * @param {string} path
   * @param {TransportEnds} ends
   */
  async findReason(path, ends) {
    try {
      const answer = await fetch(path, { method: "HEAD", cache: "no-store", redirect: "error" });
      this.isUnable = answer.ok;
      const after = Number(answer.headers.get("Retry-After") ?? 0) * 1000;
      ends.onEnd(answer.ok ? LOST : { status: answer.status, reason: "", after });
    } catch {
      ends.onEnd(LOST);
    }
  }
}

/**
 * Return the address of the WebSocket of a page's or a worker's server.
 * @param {string} href
 */
export function socketAddress(href) {
  const url = new URL("/stream", href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}
