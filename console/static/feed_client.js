/**
 * A page's end of its feed: through the browser's SharedWorker, or with a hub of its own where
 * there is none.
 *
 * A page that is hidden for 30 seconds leaves the feed. It goes on at its token when it is shown.
 */

import { FeedHub } from "./feed_hub.js";
import { FeedSocket, socketAddress } from "./feed_socket.js";

/** @typedef {import("./feed_hub.js").HubMessage} HubMessage */

export const HIDDEN_MS_MAX = 30000;
const HERE_MS = 10000;

/**
 * @typedef {object} Line Where a page sends what it wants of its hub.
 * @property {(path: string, token: string) => void} join
 * @property {() => void} leave
 */

export class FeedClient {
  /**
   * @param {object} options
   * @param {string} options.path
   * @param {string} options.token
   * @param {string} options.worker The address of feed_worker.js.
   * @param {(message: HubMessage) => void} options.onMessage
   */
  constructor({ path, token, worker, onMessage }) {
    this.path = path;
    this.token = token;
    this.onMessage = onMessage;
    this.isJoined = false;
    this.isWanted = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.hiding = undefined;
    const take = (/** @type {HubMessage} */ message) => this.take(message);
    const again = () => this.isJoined && this.line.join(this.path, this.token);
    this.line = makeLine(worker, take, again);
    document.addEventListener("visibilitychange", () => this.followVisibility());
    addEventListener("pagehide", () => this.line.leave());
    addEventListener("pageshow", (event) => {
      if (event.persisted && this.isJoined) this.line.join(this.path, this.token);
    });
  }

  /**
   * Get events from a token on; without one, from where the client is.
   * @param {string} [token]
   */
  join(token) {
    if (token !== undefined) this.token = token;
    this.isWanted = true;
    this.isJoined = true;
    this.line.join(this.path, this.token);
  }

  leave() {
    this.isWanted = false;
    this.drop();
  }

  drop() {
    if (this.isJoined) this.line.leave();
    this.isJoined = false;
  }

  /** @param {HubMessage} message */
  take(message) {
    if (!this.isJoined) return;
    this.onMessage(message);
    if (message.event?.id) this.token = message.event.id;
  }

  followVisibility() {
    clearTimeout(this.hiding);
    if (document.visibilityState === "hidden") {
      this.hiding = setTimeout(() => this.drop(), HIDDEN_MS_MAX);
    } else if (this.isWanted && !this.isJoined) {
      this.join();
    }
  }
}

/**
 * @param {string} worker
 * @param {(message: HubMessage) => void} take
 * @param {() => void} again
 * @returns {Line}
 */
function makeLine(worker, take, again) {
  if (typeof SharedWorker === "undefined") return makeOwnHub(take);
  // The one address that this page makes a worker of: Trusted Types ask for a policy.
  const options = { type: /** @type {WorkerType} */ ("module"), name: "rowtide" };
  const port = new SharedWorker(trustedUrl(worker), options).port;
  port.addEventListener("message", ({ data }) => (data.isUnknown ? again() : take(data)));
  port.start();
  setInterval(() => port.postMessage({ kind: "here" }), HERE_MS);
  return {
    join: (path, token) => port.postMessage({ kind: "join", path, token }),
    leave: () => port.postMessage({ kind: "leave" }),
  };
}

/**
 * @param {(message: HubMessage) => void} take
 * @returns {Line}
 */
function makeOwnHub(take) {
  const hub = new FeedHub(new FeedSocket(socketAddress(location.href)).open);
  const viewer = { send: take };
  return {
    join: (path, token) => hub.join(viewer, path, token),
    leave: () => hub.leave(viewer),
  };
}

/**
 * @param {string} worker
 * @returns {string}
 */
function trustedUrl(worker) {
  const types = /** @type {any} */ (globalThis).trustedTypes;
  if (!types) return worker;
  const policy = types.createPolicy("rowtide", {
    /** @param {string} url */
    createScriptURL: (url) => {
      const { origin, pathname } = new URL(url, location.href);
      if (origin === location.origin && pathname.startsWith("/static/")) return url;
      throw new TypeError(`no module of the console: ${url}`);
    },
  });
  return policy.createScriptURL(worker);
}
