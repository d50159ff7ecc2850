/** Rules for the modules of console/static: what a reader trips over, and what the policy forbids. */

import js from "@eslint/js";
import globals from "globals";

/** Ways from a text to HTML or to code. Values become text nodes, by textContent or by Preact. */
const FORBIDDEN = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "dangerouslySetInnerHTML"];

export default [
  js.configs.recommended,
  {
    languageOptions: {
      ecmaVersion: 2024,
      sourceType: "module",
      globals: { ...globals.browser, ...globals.sharedWorker },
    },
    rules: {
      "consistent-return": "off",
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", 60],
      "no-alert": "error",
      "no-console": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-restricted-properties": [
        "error",
        ...FORBIDDEN.map((property) => ({ property, message: "A value is shown as text only." })),
        { object: "document", property: "write", message: "A value is shown as text only." },
      ],
      "no-script-url": "error",
      "no-shadow": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  { ignores: ["**/vendor/**"] },
];
