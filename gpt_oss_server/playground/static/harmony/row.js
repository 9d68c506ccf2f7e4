// One row of the Harmony view.
import { html } from "../vendor/preact.js";
import { shownText } from "./rows.js";
import { heatOf } from "./heat.js";
import { MEANINGS } from "./slips.js";

// `look` is how tokens are coloured, and which were searched for.
export const drawRow = (row, at, selected, look) => DRAW[row.kind](row, at, selected, look);

function line({ tokens }, row, selected, look) {
  return tokens.map((token, at) => html`<span data-t=${`${row}:${at}`} class=${classOf(token, token === selected, look)}>${shownText(token.text)}</span>`);
}

function classOf(token, selected, { mode, hits }) {
  const names = ["t", token.kind === "special" ? "special" : token.kind === "header" || token.header ? "header" : "text", token.channel || "none"];
  if (token.cached) names.push("cached");
  if (token.dropped) names.push("dropped");
  if (token.slip) names.push("slipped");
  if (selected) names.push("selected");
  if (hits.has(token)) names.push("hit");
  const heat = heatOf(token, mode);
  if (heat !== null) names.push("hot", `h${heat}`);
  if (token.logprob !== null && token.logprob < -1.2) names.push("unsure");
  return names.join(" ");
}

const readAs = (message) => (message ? `${message.recipient ? `a call of ${message.recipient}` : message.channel === "final" ? "an answer to the user" : message.channel === "analysis" ? "reasoning" : "a message to the user before a call"} (channel ${message.channel})` : "no message");

const slip = ({ slip: found }) => html`<div class="slip-card" title=${`${found.detail}\n${MEANINGS[found.kind]}`}>
  <p><strong>${found.kind.replaceAll("_", " ")}</strong> ${found.detail}</p>
  <p class="faint">${MEANINGS[found.kind]}</p><p>Read as ${readAs(found.became)}.</p></div>`;

const cut = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);
const side = (message) => (message ? `${message.channel ?? "no channel"}${message.recipient ? ` to=${message.recipient}` : ""}: ${cut(message.text)}` : "—");

const DRAW = {
  response: (row) => html`<h3>${row.id}</h3><span class=${`tag ${row.status === "failed" ? "bad" : ""}`}>${row.status}</span>`,
  title: (row) => html`<h4 class=${row.role}>${row.text}</h4><span class="faint">${row.note}</span>`,
  tokens: line,
  folded: (row) => html`<button type="button" class="quiet" aria-expanded=${row.open} data-fold=${row.key}>${row.open ? "▾" : "▸"} <strong class=${row.role}>${row.role || "message"}</strong> ${row.count} <span class="faint">${row.open ? "" : row.text}</span></button>`,
  slip,
  tool: ({ run }) => html`<div class="tool-card"><strong>${run.recipient}</strong> <span class="faint">ran ${(run.ended - run.began).toFixed(2)} s</span><p class="faint" title=${run.output}>${cut(run.output)}</p></div>`,
  same: () => html`<p class="good">✓ OpenAI's StreamableParser reads the same messages.</p>`,
  differs: (row) => html`<p class="bad" title=${row.error}>This server <span class="versus">and</span> StreamableParser${row.error ? ` (stops at token ${row.at}: ${row.error})` : ""}</p>`,
  reading: (row) => html`<div class=${`sides ${row.differs ? "differs" : ""}`}><span title=${side(row.own)}>${side(row.own)}</span><span title=${side(row.other)}>${side(row.other)}</span></div>`,
  warning: (row) => html`<p class="bad">${row.text}</p>`,
};
