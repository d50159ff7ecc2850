/**
 * The SharedWorker of all tabs of this browser: one hub of feeds.
 *
 * A tab says where it is every few seconds. One that is silent for longer was closed or has
 * crashed, and no longer holds a feed open. If it speaks again, it is told to join again.
 */

import { FeedHub } from "./feed_hub.js";
import { FeedSocket, socketAddress } from "./feed_socket.js";

/**
 * @typedef {object} TabMessage
 * @property {"join" | "leave" | "here"} kind
 * @property {string} [path]
 * @property {string} [token]
 */

const TAB_SILENCE_MS_MAX = 40000;
const hub = new FeedHub(new FeedSocket(socketAddress(location.href)).open);
/** @type {Map<MessagePort, { viewer: import("./feed_hub.js").Viewer, heard: number }>} */
const tabs = new Map();

/**
 * @param {MessagePort} port
 * @param {TabMessage} message
 */
function takeMessage(port, message) {
  const tab = tabs.get(port);
  if (message.kind === "join") {
    const viewer = tab?.viewer ?? {
      /** @param {import("./feed_hub.js").HubMessage} sent */
      send: (sent) => port.postMessage(sent),
    };
    tabs.set(port, { viewer, heard: Date.now() });
    hub.join(viewer, message.path ?? "", message.token ?? "");
  } else if (!tab) {
    if (message.kind === "here") port.postMessage({ isUnknown: true });
  } else if (message.kind === "leave") {
    dropTab(port);
  } else {
    tab.heard = Date.now();
  }
}

/** @param {MessagePort} port */
function dropTab(port) {
  const tab = tabs.get(port);
  tabs.delete(port);
  if (tab) hub.leave(tab.viewer);
}

setInterval(() => {
  const oldest = Date.now() - TAB_SILENCE_MS_MAX;
  for (const [port, tab] of tabs) {
    if (tab.heard < oldest) dropTab(port);
  }
}, TAB_SILENCE_MS_MAX / 4);

addEventListener("connect", (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports;
  port.addEventListener("message", ({ data }) => takeMessage(port, data));
  port.start();
});
