/** Rules of the one WebSocket of a browser. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { FeedSocket, socketAddress } from "../../../console/static/feed_socket.js";

/** A WebSocket whose server is the test. */
class FakeSocket extends EventTarget {
  sent = [];
  isClosed = false;

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.isClosed = true;
  }

  accept() {
    this.dispatchEvent(new Event("open"));
  }

  say(message) {
    this.dispatchEvent(Object.assign(new Event("message"), { data: JSON.stringify(message) }));
  }

  lose() {
    this.dispatchEvent(new Event("close"));
  }
}

function start() {
  const sockets = [];
  const feeds = new FeedSocket("ws://console/stream", () => {
    sockets.push(new FakeSocket());
    return sockets.at(-1);
  });
  const open = (path) => {
    const seen = { events: [], ends: [] };
    const handle = feeds.open(path, {
      onOpen: () => {},
      onEvent: (event) => seen.events.push(event),
      onEnd: (refusal) => seen.ends.push(refusal),
    });
    return { ...seen, close: handle.close };
  };
  return { feeds, sockets, open };
}

test("feeds of one browser share a connection, and events go to their feed", () => {
  const { sockets, open } = start();
  const [one, other] = [open("/stream/i/a"), open("/stream/i/b")];
  assert.equal(sockets.length, 1);
  sockets[0].accept();
  const third = open("/stream/i/c");
  assert.deepEqual(sockets[0].sent, [
    { open: "1", path: "/stream/i/a" },
    { open: "2", path: "/stream/i/b" },
    { open: "3", path: "/stream/i/c" },
  ]);
  sockets[0].say({ feed: "2", event: "records", id: "x", data: { records: [] } });
  sockets[0].say({ feed: "1", event: "position", id: "y" });
  sockets[0].say({ feed: "3", event: "ready", id: "z", data: {} });
  assert.deepEqual(other.events, [{ name: "", id: "x", data: { records: [] } }]);
  assert.deepEqual(one.events, [{ name: "", id: "y", data: undefined }]);
  assert.deepEqual(third.events, [{ name: "ready", id: "z", data: {} }]);
});

test("a feed that is closed gets nothing more, and the last one closes the connection", () => {
  const { sockets, open } = start();
  const [one, other] = [open("/a"), open("/b")];
  sockets[0].accept();
  one.close();
  sockets[0].say({ feed: "1", event: "records", id: "x", data: {} });
  assert.deepEqual(one.events, []);
  assert.deepEqual(sockets[0].sent.at(-1), { close: "1" });
  assert.equal(sockets[0].isClosed, false);
  other.close();
  assert.equal(sockets[0].isClosed, true);
  open("/c");
  assert.equal(sockets.length, 2);
});

test("a refusal ends its feed alone", () => {
  const { sockets, open } = start();
  const [one, other] = [open("/a"), open("/b")];
  sockets[0].accept();
  sockets[0].say({ feed: "1", event: "error", data: { status: 400, message: "words" } });
  assert.deepEqual(one.ends, [{ status: 400, reason: "words", after: 0 }]);
  sockets[0].say({ feed: "2", event: "records", id: "x", data: {} });
  assert.equal(other.events.length, 1);
});

test("a connection that is lost ends all feeds, and the next feed makes a new one", () => {
  const { sockets, open } = start();
  const [one, other] = [open("/a"), open("/b")];
  sockets[0].accept();
  sockets[0].lose();
  for (const feed of [one, other]) assert.deepEqual(feed.ends, [{ status: 0, reason: "", after: 0 }]);
  open("/a");
  assert.equal(sockets.length, 2);
  sockets[1].accept();
  assert.deepEqual(sockets[1].sent, [{ open: "3", path: "/a" }]);
});

test("a connection that is silent is not used for the next attempt", () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  try {
    const { sockets, open } = start();
    const one = open("/a");
    sockets[0].accept();
    mock.timers.setTime(1_008_000);
    one.close();
    open("/a");
    assert.equal(sockets.length, 2);
    sockets[0].say({ feed: "2", event: "records", id: "late", data: {} });
    sockets[0].lose();
    sockets[1].accept();
    assert.deepEqual(sockets[1].sent, [{ open: "2", path: "/a" }]);
  } finally {
    mock.timers.reset();
  }
});

for (const [status, expected, isUnable] of [
  [401, 401, false],
  [404, 404, false],
  [200, 0, true],
]) {
  test(`a connection that is refused asks why: ${status}`, async () => {
    const { feeds, sockets, open } = start();
    const asked = mock.method(globalThis, "fetch", async () => new Response(null, { status }));
    try {
      const one = open("/a");
      sockets[0].lose();
      await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(asked.mock.calls[0].arguments[1].method, "HEAD");
      assert.equal(one.ends[0].status, expected);
      assert.equal(feeds.isUnable, isUnable);
    } finally {
      asked.mock.restore();
    }
  });
}

test("the address has the scheme of the page", () => {
  assert.equal(socketAddress("http://c:1/static/v/w.js"), "ws://c:1/stream");
  assert.equal(socketAddress("https://c/i/x"), "wss://c/stream");
});
