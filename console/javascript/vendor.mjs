/**
 * Make console/static/vendor from the packages of package-lock.json: `make vendor`.
 *
 * The files are committed, so nothing is built where rowtide is installed or runs. files.sha512
 * has their checksums, which a test compares.
 *
 *   node vendor.mjs NODE_MODULES VENDOR
 */

import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [modules, vendor] = process.argv.slice(2).map((path) => resolve(path));
const { build, transform } = createRequire(join(modules, "x"))("esbuild");

/** What the modules of the console import from preact.js; preact.d.ts declares the same. */
const PREACT = `
import htm from "htm";
import { h } from "preact";
export { Fragment, h, render } from "preact";
export { useEffect, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal } from "@preact/signals";
export const html = htm.bind(h);
`;

/** Packages by the vendored file that they are in. */
const FILES = {
  "preact.js": ["preact", "@preact/signals", "@preact/signals-core", "htm"],
  "uplot.js": ["uplot"],
  "uplot.css": ["uplot"],
  "pico.css": ["@picocss/pico"],
};

async function bundlePreact() {
  const { outputFiles } = await build({
    stdin: { contents: PREACT, resolveDir: modules, loader: "js" },
    bundle: true,
    format: "esm",
    minify: true,
    target: "es2022",
    legalComments: "none",
    write: false,
  });
  return outputFiles[0].text;
}

/**
 * @param {string} name
 * @param {"js" | "css"} loader
 */
async function minify(name, loader) {
  const text = await readFile(join(modules, name), "utf-8");
  const format = loader === "js" ? { format: "esm", target: "es2022" } : {};
  return (await transform(text, { loader, minify: true, legalComments: "none", ...format })).code;
}

/** @param {string} name */
async function describe(name) {
  return JSON.parse(await readFile(join(modules, name, "package.json"), "utf-8"));
}

/** @param {string} file */
async function headOf(file) {
  const packages = await Promise.all(FILES[file].map(describe));
  const names = packages.map(({ name, version, license }) => `${name} ${version} (${license})`);
  return `/* ${names.join(", ")}; licenses/ has the texts. */\n`;
}

/** @param {string} name */
async function copyLicense(name) {
  const files = await readdir(join(modules, name));
  const file = files.find((one) => /^licen[cs]e(\.md|\.txt)?$/i.test(one));
  if (!file) throw new Error(`${name} has no licence`);
  const text = await readFile(join(modules, name, file), "utf-8");
  await writeFile(join(vendor, "licenses", `${name.replace(/^@/, "").replace("/", "-")}.txt`), text);
}

/** Write the checksums of all made files, as `sha512sum --check` reads them. */
async function writeLock() {
  const names = [...Object.keys(FILES)];
  names.push(...(await readdir(join(vendor, "licenses"))).map((name) => `licenses/${name}`));
  const lines = await Promise.all(
    names.sort().map(async (name) => {
      const content = await readFile(join(vendor, name));
      return `${createHash("sha512").update(content).digest("hex")}  ${name}\n`;
    }),
  );
  await writeFile(join(vendor, "files.sha512"), lines.join(""));
}

await rm(join(vendor, "licenses"), { recursive: true, force: true });
await mkdir(join(vendor, "licenses"), { recursive: true });
const made = {
  "preact.js": await bundlePreact(),
  "uplot.js": await minify("uplot/dist/uPlot.esm.js", "js"),
  "uplot.css": await minify("uplot/dist/uPlot.min.css", "css"),
  "pico.css": await minify("@picocss/pico/css/pico.min.css", "css"),
};
for (const [name, text] of Object.entries(made)) {
  await writeFile(join(vendor, name), (await headOf(name)) + text);
}
for (const name of new Set(Object.values(FILES).flat())) await copyLicense(name);
await writeLock();
