/**
 * Server-Sent Events out of the bytes of an answer.
 *
 * A page cannot use EventSource here: it hides the status of a refusal, and it cannot tell a lost
 * connection from a refused one.
 */

/**
 * @typedef {object} FeedEvent One event of a feed.
 * @property {string} name Empty for records and for a position without records.
 * @property {string} id The token of the position behind this event; empty if it has none.
 * @property {any} data What the event carries; undefined for a position alone.
 */

export class EventParser {
  constructor() {
    this.decoder = new TextDecoder();
    this.rest = "";
    this.name = "";
    this.id = "";
    /** @type {string[]} */
    this.lines = [];
    this.isSeen = false;
  }

  /**
   * Return the events that are complete with these bytes.
   * @param {Uint8Array} bytes
   * @returns {FeedEvent[]}
   */
  feed(bytes) {
    const text = this.rest + this.decoder.decode(bytes, { stream: true });
    // A carriage return at the end may be the first half of a line's end.
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const events = [];
    for (const line of lines) {
      if (line) this.takeLine(line);
      else if (this.isSeen) events.push(this.takeEvent());
    }
    return events;
  }

  /** @param {string} line */
  takeLine(line) {
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.isSeen = true;
    if (field === "event") this.name = value;
    else if (field === "id") this.id = value;
    else if (field === "data") this.lines.push(value);
  }

  /** @returns {FeedEvent} */
  takeEvent() {
    const text = this.lines.join("\n");
    const event = { name: this.name, id: this.id, data: text ? JSON.parse(text) : undefined };
    this.name = "";
    this.id = "";
    this.lines = [];
    this.isSeen = false;
    return event;
  }
}
