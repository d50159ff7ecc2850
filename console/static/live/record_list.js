/**
 * What the live page shows of a feed: the newest changes, and how many there were in all.
 *
 * While the page is paused, changes are held. They are bounded: beyond that they are dropped, and
 * the feed is read again from the token at which the page was paused. So nothing is lost.
 */

/** @typedef {import("./values.js").Value} Value */
/** @typedef {import("../feed_events.js").FeedEvent} FeedEvent */

/**
 * @typedef {object} FeedRecord
 * @property {"put" | "update" | "delete" | "row"} kind
 * @property {Record<string, Value>} key
 * @property {Record<string, Value>} columns What was written: the newest value of each column.
 * @property {string[]} [removed] The columns that were deleted.
 * @property {Record<string, Value> | null} [before] The row before, of the columns that are kept.
 * @property {number} [stamp] Microseconds since 1970.
 */

/**
 * @typedef {object} Item One line of the page: a record, or how many were left out.
 * @property {number} number
 * @property {FeedRecord | null} record
 * @property {number} leftOut
 */

export const ITEMS_MAX = 40;
export const HELD_MAX = 2000;

export class RecordList {
  constructor() {
    /** @type {Item[]} The newest first. */
    this.items = [];
    this.shown = 0;
    this.leftOut = 0;
    /** The position behind what is shown. */
    this.token = "";
    this.isPaused = false;
    /** @type {FeedEvent[]} */
    this.held = [];
    this.heldCount = 0;
    this.number = 0;
  }

  /**
   * Take an event. Return false if it could not be held: the feed is to be left until `resume`.
   * @param {FeedEvent} event
   */
  take(event) {
    if (!this.isPaused) {
      this.show(event);
      return true;
    }
    const { records, leftOut } = recordsOf(event);
    this.heldCount += records.length + leftOut;
    // A position alone adds nothing to look at; the last one is enough.
    if (!records.length && !leftOut && this.held.length) {
      const last = this.held[this.held.length - 1];
      if (event.id) last.id = event.id;
      return true;
    }
    this.held.push({ ...event });
    const size = this.held.reduce((sum, one) => sum + recordsOf(one).records.length + 1, 0);
    if (size <= HELD_MAX) return true;
    this.held = [];
    return false;
  }

  pause() {
    this.isPaused = true;
    this.held = [];
    this.heldCount = 0;
  }

  /** Show what was held, and go on showing. */
  resume() {
    this.isPaused = false;
    const held = this.held;
    this.held = [];
    this.heldCount = 0;
    for (const event of held) this.show(event);
  }

  /** @param {FeedEvent} event */
  show(event) {
    const { records, leftOut } = recordsOf(event);
    if (event.id) this.token = event.id;
    if (!records.length && !leftOut) return;
    const added = [];
    if (leftOut) added.push({ number: ++this.number, record: null, leftOut });
    for (const record of records) added.push({ number: ++this.number, record, leftOut: 0 });
    this.shown += records.length;
    this.leftOut += leftOut;
    this.items = [...added.slice(-ITEMS_MAX).reverse(), ...this.items].slice(0, ITEMS_MAX);
  }
}

/**
 * Return the records of an event, and how many the server left out of it.
 * @param {FeedEvent} event
 * @returns {{ records: FeedRecord[], leftOut: number }}
 */
export function recordsOf({ name, data }) {
  if (name === "rows") return { records: (data.rows ?? data).map(rowRecord), leftOut: 0 };
  if (name || data === undefined) return { records: [], leftOut: 0 };
  return { records: data.records ?? data, leftOut: data.left_out ?? 0 };
}

/**
 * @param {any} row
 * @returns {FeedRecord}
 */
function rowRecord(row) {
  return { removed: [], before: null, ...row, kind: "row" };
}

/**
 * @typedef {object} ColumnChange
 * @property {string} name
 * @property {Value | undefined} before
 * @property {Value | undefined} after
 * @property {boolean} isChanged
 */

/**
 * Return a record's columns side by side. Without the row before, only what was written is known.
 * @param {FeedRecord} record
 * @returns {ColumnChange[]}
 */
export function compareColumns({ kind, columns, removed = [], before }) {
  const old = before ?? {};
  const names = new Set([...Object.keys(old), ...Object.keys(columns), ...removed]);
  return [...names].sort().map((name) => {
    const after = columnAfter({ kind, columns, removed }, name, old[name]);
    return { name, before: old[name], after, isChanged: !isEqual(old[name], after) || !before };
  });
}

/**
 * @param {{ kind: string, columns: Record<string, Value>, removed: string[] }} change
 * @param {string} name
 * @param {Value | undefined} before
 */
function columnAfter({ kind, columns, removed }, name, before) {
  if (Object.hasOwn(columns, name)) return columns[name];
  // A put replaces the whole row; an update leaves what it does not name.
  return kind === "update" && !removed.includes(name) ? before : undefined;
}

/**
 * @param {Value | undefined} one
 * @param {Value | undefined} other
 */
function isEqual(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
