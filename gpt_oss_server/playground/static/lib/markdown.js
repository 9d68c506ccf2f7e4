// Markdown of a model, made safe: no script, no form, no style, no address but http, https and mailto.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { marked } from "../vendor/marked.js";
import "../vendor/purify.js";
import { Diagram } from "./diagram.js";
import { copy } from "./files.js";
import { FOOTNOTES, notesOf, numbered, onFootnote } from "./footnotes.js";
import { drawFormulas, escaped, FORMULAS } from "./math.js";
import { pieces } from "./highlight.js";

const purify = globalThis.DOMPurify;
const RULES = {
  ALLOWED_TAGS:
    "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i img input kbd li ol p pre s span strong sub sup table tbody td th thead tr ul".split(" "),
  ALLOWED_ATTR: ["href", "title", "alt", "start", "align", "checked", "disabled", "type", "src", "data-math"],
  ADD_URI_SAFE_ATTR: ["align", "checked", "data-math", "disabled", "start", "type"], // their values are no addresses
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  ALLOW_DATA_ATTR: false,
};

// HTML of a model is shown as the text that it is; only bare tags that mark text work. The sanitizer is the second
// line of defence.
const BARE = /^<\/?(?:b|br|code|del|em|i|kbd|p|s|strong|sub|sup)\s*\/?>$/i;
marked.use({ extensions: [...FORMULAS, ...FOOTNOTES] });
marked.use({ renderer: { html: ({ text }) => (BARE.test(text.trim()) ? text : escaped(text)) } });

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A" && node.hasAttribute("href") && !node.getAttribute("href").startsWith("#")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.nodeName === "INPUT") {
    if (node.getAttribute("type") !== "checkbox") node.remove();
    else {
      node.setAttribute("disabled", "");
      node.setAttribute("aria-label", node.hasAttribute("checked") ? "Done" : "To do");
    }
  }
  if (node.nodeName === "IMG") {
    // The page loads nothing from other hosts: an image becomes a link to it.
    const link = document.createElement("a");
    const address = node.getAttribute("src") ?? "";
    link.textContent = node.getAttribute("alt") || address || "image";
    if (/^https?:/i.test(address)) {
      Object.assign(link, { href: address, target: "_blank", rel: "noopener noreferrer" });
    }
    node.replaceWith(link);
  }
});

function safeHtml(text) {
  return purify.sanitize(text, RULES);
}

// Lists and quotes that nest deeper are shown as plain text: a reader has lost the thread long before, and the parser
// would run out of stack.
const TOO_DEEP = [
  /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){24}/m,
  /^[ \t]{96,}(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])/m,
];

// What `read` makes of the text; null where it cannot be read.
function readable(text, read) {
  try {
    return TOO_DEEP.some((pattern) => pattern.test(text)) ? null : read();
  } catch {
    return null;
  }
}

export function Markdown({ text, class: kind = "" }) {
  const blocks = useMemo(() => readable(text, () => marked.lexer(text)), [text]);
  const { numbers, notes } = useMemo(() => notesOf(text, blocks ?? []), [blocks]);
  const order = [...numbers.keys()].join(" ");
  if (blocks === null) return html`<pre class=${`plain ${kind}`}>${text}</pre>`;
  return html`<div class=${`markdown ${kind}`} onClick=${onFootnote}>
    ${blocks.map((block, at) =>
      block.type === "code"
        ? html`<${Fenced} key=${at} block=${block} />`
        : ["space", "footnote"].includes(block.type) ? null : html`<${Block} key=${at} raw=${block.raw} links=${blocks.links} numbers=${numbers} order=${order} />`,
    )}
    ${notes.length > 0 && html`<ol class="footnotes" aria-label="Footnotes">${notes.map((note) => html`<li key=${note.number} data-note=${note.number} tabindex="-1">
      <${Block} raw=${note.text} links=${blocks.links} numbers=${numbers} order=${order} /><a href=${`#from-${note.number}`} aria-label="Back to the text">↩</a></li>`)}</ol>`}
  </div>`;
}

// Code, or a diagram once its fence is closed.
function Fenced({ block: { raw, text, lang } }) {
  const code = html`<${Code} code=${text} language=${(lang || "").split(/\s/)[0]} />`;
  return lang === "mermaid" && /\n`{3,}\s*$|\n~{3,}\s*$/.test(raw) ? html`<${Diagram} key=${text} text=${text}>${code}<//>` : code;
}

// A block is parsed again only when its text changes, so that a long answer streams smoothly.
function Block({ raw, links, numbers, order }) {
  const place = useRef();
  const inner = useMemo(() => readable(raw, () => numbered(numbers, () => {
    const tokens = marked.lexer(raw);
    tokens.links = { ...links, ...tokens.links };
    return { __html: safeHtml(marked.parser(tokens)) };
  })), [raw, order]);
  useLayoutEffect(() => {
    if (!place.current) return;
    drawFormulas(place.current);
    for (const table of place.current.querySelectorAll("table")) if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
  }, [inner]);
  if (inner === null) return html`<pre class="plain">${raw}</pre>`;
  return html`<div class="block" ref=${place} dangerouslySetInnerHTML=${inner}></div>`;
}

export function Code({ code, language, label }) {
  const [copied, setCopied] = useState(false);
  const parts = useMemo(() => pieces(code, language), [code, language]);
  const take = async () => {
    await copy(code);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<figure class="code">
    <figcaption><span>${label ?? (language || "text")}</span>
      <button type="button" class="quiet" onClick=${take}>${copied ? "Copied" : "Copy"}</button></figcaption>
    <pre tabindex="0"><code>${parts.map(([kind, text]) => (kind ? html`<span class=${`hl-${kind}`}>${text}</span>` : text))}</code></pre>
  </figure>`;
}
