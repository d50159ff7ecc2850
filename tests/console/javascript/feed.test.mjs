/** Rules of the feed in the browser: parsing, reconnecting, sharing, pausing. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { FeedConnection, SILENCE_MS_MAX } from "../../../console/static/feed_connection.js";
import { EventParser } from "../../../console/static/feed_events.js";
import { FeedHub } from "../../../console/static/feed_hub.js";
import { compareColumns, HELD_MAX, ITEMS_MAX, RecordList } from "../../../console/static/live/record_list.js";
import { textOf, typeOf } from "../../../console/static/live/values.js";

/** A server whose connections a test answers by hand. */
class Server {
  opened = [];

  transport = (path, ends) => {
    const connection = { path, ...ends, isOpen: true, close: () => (connection.isOpen = false) };
    this.opened.push(connection);
    return connection;
  };

  get last() {
    return this.opened.at(-1);
  }

  get open() {
    return this.opened.filter((connection) => connection.isOpen);
  }
}

const records = (id, count, leftOut = 0) => ({
  name: "",
  id,
  data: { records: Array.from({ length: count }, (_, n) => record(`${id}-${n}`)), left_out: leftOut },
});
const record = (key) => ({ kind: "put", key: { key }, columns: {}, removed: [], before: null, stamp: 1 });

function connect(server, token = "") {
  const events = [];
  const states = [];
  const connection = new FeedConnection({
    path: "/stream/i/t?mode=sampled",
    token,
    transport: server.transport,
    onEvent: (event) => events.push(event.id),
    onState: (state) => states.push(state),
  });
  return { connection, events, states };
}

const CUT = { status: 0, reason: "", after: 0 };

test.beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_000_000 }));
test.afterEach(() => mock.timers.reset());

test("events are the same, however their bytes are cut", () => {
  const text =
    ': hello\n\nid: 1\ndata: {"records": [1,\ndata: 2], "x": "写"}\n\nevent: ready\r\nid: 2\r\n\r\nid: 3\n\n';
  const bytes = new TextEncoder().encode(text);
  const whole = new EventParser().feed(bytes);
  assert.deepEqual(whole, [
    { name: "", id: "1", data: { records: [1, 2], x: "写" } },
    { name: "ready", id: "2", data: undefined },
    { name: "", id: "3", data: undefined },
  ]);
  for (let at = 1; at < bytes.length; at += 1) {
    const parser = new EventParser();
    assert.deepEqual([...parser.feed(bytes.slice(0, at)), ...parser.feed(bytes.slice(at))], whole);
  }
});

test("a connection that is cut goes on at its token", () => {
  const server = new Server();
  const { events, states } = connect(server);
  assert.equal(server.last.path, "/stream/i/t?mode=sampled");
  server.last.onEvent(records("a", 1));
  server.last.onEnd(CUT);
  assert.deepEqual(states.map((state) => state.name), ["live", "behind"]);
  assert.equal(states[1].since, 1_000_000);
  mock.timers.tick(300);
  assert.equal(server.last.path, "/stream/i/t?mode=sampled&after=a");
  server.last.onEvent(records("b", 1));
  assert.deepEqual(events, ["a", "b"]);
  assert.equal(states.at(-1).name, "live");
});

test("a server that is silent is behind within ten seconds, and healed by the next event", () => {
  const server = new Server();
  const { states } = connect(server);
  server.last.onEvent(records("a", 1));
  mock.timers.tick(SILENCE_MS_MAX - 600);
  assert.equal(states.at(-1).name, "live");
  mock.timers.tick(1200);
  assert.deepEqual([states.at(-1).name, states.at(-1).since], ["behind", 1_000_000]);
  assert.equal(server.open.length, 1);
  server.last.onEvent({ name: "", id: "b", data: undefined });
  assert.equal(states.at(-1).name, "live");
});

test("attempts have pauses that grow and stay below four seconds", () => {
  const server = new Server();
  connect(server);
  for (let attempt = 0; attempt < 10; attempt += 1) {
    const count = server.opened.length;
    server.last.onEnd(CUT);
    mock.timers.tick(4000);
    assert.equal(server.opened.length, count + 1);
  }
});

test("an answer that says when to come again is obeyed", () => {
  const server = new Server();
  connect(server);
  server.last.onEnd({ status: 503, reason: "full", after: 7000 });
  mock.timers.tick(6500);
  assert.equal(server.opened.length, 1);
  mock.timers.tick(1000);
  assert.equal(server.opened.length, 2);
});

for (const [status, name, isOver] of [
  [400, "over", true],
  [403, "over", true],
  [404, "over", true],
  [204, "over", true],
  [401, "logged_out", false],
  [429, "behind", false],
  [500, "behind", false],
  [503, "behind", false],
]) {
  test(`status ${status} makes a feed ${name}`, () => {
    const server = new Server();
    const { states } = connect(server);
    server.last.onEnd({ status, reason: "words", after: 0 });
    assert.deepEqual([states.at(-1).name, states.at(-1).reason], [name, "words"]);
    mock.timers.tick(20_000);
    assert.equal(server.opened.length > 1, !isOver);
  });
}

test("an expired position ends the feed and names the oldest", () => {
  const server = new Server();
  const { states } = connect(server, "old");
  server.last.onEvent({ name: "expired", id: "marker", data: { oldest: "o", reason: "trimmed" } });
  assert.deepEqual(states, [{ name: "over", since: 0, reason: "trimmed", oldest: "o" }]);
});

for (const [code, isOver] of [["server_stops", false], ["table_deleted", true], ["access_revoked", true]]) {
  test(`after the end ${code} a feed ${isOver ? "is over" : "connects again"}`, () => {
    const server = new Server();
    connect(server);
    server.last.onEvent({ name: "end", id: "", data: { code, reason: "" } });
    mock.timers.tick(1000);
    assert.equal(server.opened.length, isOver ? 1 : 2);
  });
}

test("a viewer that is too slow goes on at the token of that event", () => {
  const server = new Server();
  connect(server);
  server.last.onEvent({ name: "slow", id: "s", data: { reason: "queue" } });
  mock.timers.tick(300);
  assert.match(server.last.path, /after=s$/);
  assert.equal(server.open.length, 1);
});

test("a worker that does not answer makes a feed behind, since when the server says", () => {
  const server = new Server();
  const { states } = connect(server);
  server.last.onEvent({ name: "behind", id: "b", data: { behind_s: 5.5, reason: "worker" } });
  assert.deepEqual(states, [{ name: "behind", since: 994_500, reason: "worker", oldest: "" }]);
});

function join(hub, path, token = "") {
  const viewer = { ids: [], send: ({ event }) => event && viewer.ids.push(event.id) };
  hub.join(viewer, path, token);
  return viewer;
}

test("eight tabs of one feed have one connection, and each gets every event", () => {
  const server = new Server();
  const hub = new FeedHub(server.transport);
  const first = join(hub, "/stream/i/t");
  server.last.onEvent({ name: "ready", id: "0", data: {} });
  const others = Array.from({ length: 7 }, () => join(hub, "/stream/i/t"));
  assert.equal(server.opened.length, 1);
  for (const id of ["1", "2"]) server.last.onEvent(records(id, 1));
  for (const viewer of [first, ...others]) assert.deepEqual(viewer.ids, ["0", "1", "2"]);
  for (const viewer of [first, ...others]) hub.leave(viewer);
  assert.equal(server.open.length, 0);
});

test("a tab that comes back gets what it missed, from the memory of the others", () => {
  const server = new Server();
  const hub = new FeedHub(server.transport);
  join(hub, "/stream/i/t");
  for (const id of ["1", "2", "3"]) server.last.onEvent(records(id, 1));
  const late = join(hub, "/stream/i/t", "1");
  assert.deepEqual(late.ids, ["2", "3"]);
  assert.equal(server.opened.length, 1);
});

test("a tab that was away for long has its own connection until it has caught up", () => {
  const server = new Server();
  const hub = new FeedHub(server.transport);
  const viewer = join(hub, "/stream/i/t");
  const main = server.last;
  for (let id = 100; id < 400; id += 1) main.onEvent(records(String(id), 1));
  const late = join(hub, "/stream/i/t", "50");
  assert.match(server.last.path, /after=50$/);
  const own = server.last;
  own.onEvent(records("51", 1));
  assert.equal(server.open.length, 2);
  own.onEvent(records("399", 1));
  assert.equal(server.open.length, 1);
  server.open[0].onEvent(records("400", 1));
  assert.deepEqual(late.ids, ["51", "399", "400"]);
  assert.equal(viewer.ids.at(-1), "400");
});

test("feeds that begin elsewhere, or have another filter, are not shared", () => {
  const server = new Server();
  const hub = new FeedHub(server.transport);
  for (const path of ["/stream/i/t", "/stream/i/t?filter=a", "/stream/i/u", "/stream/i/t?begin=oldest"]) {
    join(hub, path);
    server.last.onEvent({ name: "ready", id: `${path} 0`, data: {} });
  }
  assert.equal(server.open.length, 4);
});

test("a page shows the newest changes and counts all", () => {
  const list = new RecordList();
  for (let n = 0; n < 50; n += 1) list.take(records(`t${n}`, 20, n === 49 ? 3 : 0));
  assert.equal(list.items.length, ITEMS_MAX);
  assert.deepEqual([list.shown, list.leftOut, list.token], [1000, 3, "t49"]);
  assert.equal(list.items[0].record.key.key, "t49-19");
  assert.equal(list.items[20].leftOut, 3);
});

test("a paused page holds what comes and shows it afterwards, nothing lost", () => {
  const list = new RecordList();
  list.take(records("a", 1));
  list.pause();
  assert.equal(list.take(records("b", 5, 2)), true);
  for (let n = 0; n < 5000; n += 1) assert.equal(list.take({ name: "", id: `p${n}`, data: undefined }), true);
  assert.deepEqual([list.shown, list.heldCount, list.token], [1, 7, "a"]);
  list.resume();
  assert.deepEqual([list.shown, list.leftOut, list.token], [6, 2, "p4999"]);
});

test("a page that is paused for long stays at the token at which it was paused", () => {
  const list = new RecordList();
  list.take(records("a", 1));
  list.pause();
  let taken = 0;
  while (list.take(records(`b${taken}`, 20))) taken += 1;
  assert.ok(taken * 20 <= HELD_MAX);
  assert.equal(list.held.length, 0);
  list.resume();
  assert.deepEqual([list.shown, list.token], [1, "a"]);
});

test("a record is shown before and after, as far as both are known", () => {
  const before = { a: 1, b: 2, c: 3 };
  const columns = { a: 9 };
  const row = (change) =>
    compareColumns({ key: {}, ...change }).map(({ name, after, isChanged }) => `${name}${after ?? "-"}${isChanged ? "!" : ""}`);
  assert.deepEqual(row({ kind: "update", columns, removed: ["b"], before }), ["a9!", "b-!", "c3"]);
  assert.deepEqual(row({ kind: "put", columns, removed: [], before }), ["a9!", "b-!", "c-!"]);
  assert.deepEqual(row({ kind: "delete", columns: {}, removed: [], before }), ["a-!", "b-!", "c-!"]);
  assert.deepEqual(row({ kind: "update", columns, removed: ["b"], before: null }), ["a9!", "b-!"]);
});

test("a value keeps its type and hides nothing", () => {
  const values = ["x", 1, 1.5, true, { base64: "AA==" }, { int: "9223372036854775807" }, { double: "1.0" }];
  assert.deepEqual(values.map(typeOf), ["text", "int", "double", "bool", "bytes", "int", "double"]);
  assert.deepEqual(values.slice(4).map((value) => textOf(value)), ["AA==", "9223372036854775807", "1.0"]);
  assert.equal(textOf("a\u202eb\u0000"), "a\\u{202e}b\\u{0}");
  assert.equal(textOf("<script>"), "<script>");
  assert.equal(textOf("😀".repeat(400)).endsWith("…"), true);
  assert.equal(textOf(null), "•••");
});
