// Formulas: `\(…\)`, `\[…\]` and `$$…$$`. Markdown keeps their source; KaTeX draws it, and is loaded for the first one.
import { address } from "./place.js";

const OPTIONS = { throwOnError: false, strict: "ignore", errorColor: "var(--bad)", trust: false, maxSize: 30, maxExpand: 300 };
const INLINE = /^(?:\\\(([\s\S]+?)\\\)|\\\[([\s\S]+?)\\\]|\$\$([\s\S]+?)\$\$)/;
const BLOCK = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n+|$)/;

export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const drawn = ({ tex, display }) => `<span data-math="${display ? "block" : "inline"}">${escaped(tex)}</span>`;

// Extensions of the reader of Markdown.
export const FORMULAS = [
  {
    name: "formula",
    level: "block",
    start: (text) => /(?:^|\n) {0,3}(?:\$\$|\\\[)/.exec(text)?.index,
    tokenizer(text) {
      const found = BLOCK.exec(text);
      return found ? { type: "formula", raw: found[0], tex: (found[1] ?? found[2]).trim(), display: true } : undefined;
    },
    renderer: (token) => `<p>${drawn(token)}</p>`,
  },
  {
    name: "inlineFormula",
    level: "inline",
    start: (text) => /\\[([]|\$\$/.exec(text)?.index,
    tokenizer(text) {
      const found = INLINE.exec(text);
      return found ? { type: "inlineFormula", raw: found[0], tex: (found[1] ?? found[2] ?? found[3]).trim(), display: found[1] === undefined } : undefined;
    },
    renderer: drawn,
  },
];

const AGAIN = 5000; // milliseconds after which a load that failed is tried again
let loading = null;

function load() {
  const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address("web/vendor/katex/katex.css") });
  document.head.append(sheet);
  return import("../vendor/katex/katex.js");
}

// What was written, where KaTeX could not be loaded.
function showSource(place) {
  const [begin, end] = place.dataset.math === "block" ? ["\\[", "\\]"] : ["\\(", "\\)"];
  if ("drawn" in place.dataset) return;
  place.textContent = `${begin}${place.textContent}${end}`;
  place.dataset.drawn = "";
}

// Draws the formulas of a piece of the page. One that KaTeX does not know stays as it was written, in red.
export function drawFormulas(place) {
  const waiting = [...place.querySelectorAll("[data-math]:not([data-drawn])")];
  if (!waiting.length) return;
  if (!globalThis.katex) {
    loading ??= load();
    loading.then(() => drawFormulas(place), () => {
      setTimeout(() => { loading = null; }, AGAIN);
      waiting.forEach(showSource);
    });
    return;
  }
  for (const each of waiting) {
    const display = each.dataset.math === "block";
    globalThis.katex.render(each.textContent, each, { ...OPTIONS, displayMode: display });
    each.dataset.drawn = "";
    if (display) each.tabIndex = 0; // a long one scrolls
  }
}
