/**
 * The feeds of all tabs of one browser, over as few connections as possible.
 *
 * Tabs with the same feed share a connection. A tab that comes back with an older token is served
 * from what the connection remembers, or gets a connection of its own until that has caught up;
 * then both become one. Each viewer gets every event once and in order.
 */

import { FeedConnection } from "./feed_connection.js";

/** @typedef {import("./feed_events.js").FeedEvent} FeedEvent */
/** @typedef {import("./feed_connection.js").FeedState} FeedState */
/** @typedef {import("./feed_connection.js").Transport} Transport */

/**
 * @typedef {object} HubMessage What a viewer receives: an event, or a new state.
 * @property {FeedEvent} [event]
 * @property {FeedState} [state]
 */

/** @typedef {{ send(message: HubMessage): void }} Viewer */

const EVENTS_KEPT_MAX = 200;

class Channel {
  /**
   * @param {string} key
   * @param {boolean} isAtLatest
   */
  constructor(key, isAtLatest) {
    this.key = key;
    /** False while it is behind what "latest" means, so nobody may join without a token. */
    this.isAtLatest = isAtLatest;
    /** @type {Set<Viewer>} */
    this.viewers = new Set();
    /** @type {FeedEvent[]} */
    this.events = [];
    this.token = "";
    /** @type {FeedConnection | null} */
    this.connection = null;
  }

  /**
   * Return the events behind a token; null if they are not kept any more.
   * @param {string} token
   * @returns {FeedEvent[] | null}
   */
  eventsAfter(token) {
    if (token === this.token) return [];
    const at = this.events.findLastIndex((event) => event.id === token);
    return at < 0 ? null : this.events.slice(at + 1);
  }
}

export class FeedHub {
  /** @param {Transport} transport */
  constructor(transport) {
    this.transport = transport;
    /** @type {Set<Channel>} */
    this.channels = new Set();
  }

  /**
   * Send a viewer the events of a feed from a token on; without one, from where the path says.
   * @param {Viewer} viewer
   * @param {string} path
   * @param {string} token
   */
  join(viewer, path, token) {
    this.leave(viewer);
    const key = keyOf(path);
    for (const channel of this.channels) {
      if (channel.key !== key) continue;
      if (token) {
        const missed = channel.eventsAfter(token);
        if (!missed) continue;
        this.add(viewer, channel, missed);
        return;
      }
      if (channel.isAtLatest && beginsAtLatest(path) && channel.token) {
        this.add(viewer, channel, [{ name: "ready", id: channel.token, data: undefined }]);
        return;
      }
    }
    this.open(viewer, path, token);
  }

  /** @param {Viewer} viewer */
  leave(viewer) {
    for (const channel of this.channels) {
      if (channel.viewers.delete(viewer) && !channel.viewers.size) this.end(channel);
    }
  }

  /**
   * @param {Viewer} viewer
   * @param {Channel} channel
   * @param {FeedEvent[]} missed
   */
  add(viewer, channel, missed) {
    channel.viewers.add(viewer);
    if (channel.connection) viewer.send({ state: channel.connection.state });
    for (const event of missed) viewer.send({ event });
  }

  /**
   * @param {Viewer} viewer
   * @param {string} path
   * @param {string} token
   */
  open(viewer, path, token) {
    const channel = new Channel(keyOf(path), !token && beginsAtLatest(path));
    channel.token = token;
    channel.viewers.add(viewer);
    this.channels.add(channel);
    channel.connection = new FeedConnection({
      path,
      token,
      transport: this.transport,
      onEvent: (event) => this.take(channel, event),
      onState: (state) => this.show(channel, state),
    });
  }

  /** @param {Channel} channel */
  end(channel) {
    channel.connection?.close();
    this.channels.delete(channel);
  }

  /**
   * @param {Channel} channel
   * @param {FeedEvent} event
   */
  take(channel, event) {
    if (event.id) channel.token = event.id;
    channel.events.push(event);
    if (channel.events.length > EVENTS_KEPT_MAX) channel.events.shift();
    for (const viewer of channel.viewers) viewer.send({ event });
    for (const other of this.channels) {
      if (other !== channel && other.key === channel.key && other.token === channel.token) {
        this.unite(channel, other);
        break;
      }
    }
  }

  /**
   * Make one of two channels at the same position: the one that more viewers have.
   * @param {Channel} one
   * @param {Channel} other
   */
  unite(one, other) {
    const [kept, ended] = one.viewers.size > other.viewers.size ? [one, other] : [other, one];
    kept.isAtLatest ||= ended.isAtLatest;
    const moved = [...ended.viewers];
    this.end(ended);
    for (const viewer of moved) this.add(viewer, kept, []);
  }

  /**
   * @param {Channel} channel
   * @param {FeedState} state
   */
  show(channel, state) {
    for (const viewer of channel.viewers) viewer.send({ state });
    if (state.name === "over") this.channels.delete(channel);
  }
}

/**
 * Return what is the same of all viewers of one feed: its path without where they begin.
 * @param {string} path
 */
function keyOf(path) {
  const url = new URL(path, "http://console");
  url.searchParams.delete("begin");
  return url.pathname + url.search;
}

/** @param {string} path */
function beginsAtLatest(path) {
  const begin = new URL(path, "http://console").searchParams.get("begin");
  return begin === null || begin === "latest";
}
