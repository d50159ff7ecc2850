/** What preact.js exports; console/javascript/vendor.mjs makes it. */

import type { VNode } from "preact";

export { Fragment, h, render } from "preact";
export { useEffect, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal } from "@preact/signals";
export type { Signal } from "@preact/signals";
export declare function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
