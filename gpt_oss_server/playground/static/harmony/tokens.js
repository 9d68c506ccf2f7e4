// The Harmony view: prompts and completions as tokens, slips with what the decoder did, and the library's reading.
import { html, useMemo, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { isRunning } from "../chat/runner.js";
import { conversations, current } from "../chat/store.js";
import { holds, shown } from "../chat/tree.js";
import { Icon } from "../ui/icons.js";
import { copyLink, openDialog, saveTrace } from "../ui/traces.js";
import { view } from "../ui/view.js";
import { Inspector } from "./inspector.js";
import { useTrace } from "./live.js";
import { HEIGHTS, rowsOf } from "./rows.js";
import { drawRow } from "./row.js";
import { Virtual } from "./virtual.js";

export function Tokens() {
  const { trace: opened, subject } = useShared(view);
  // Not the conversation, which changes with every token: the rows would all be drawn again.
  const id = useShared(conversations, (state) => shownOf(current(state), subject));
  const running = useShared(conversations, (state) => isGenerating(current(state), id));
  const live = useTrace(opened ? null : id, running);
  const trace = opened?.trace ?? live.trace;
  return html`<div class="tokens-view">
    <div class="row-of actions">
      <button type="button" class="quiet" onClick=${openDialog}><${Icon} name="open" />Open a trace</button>
      ${!opened && id && html`<button type="button" class="quiet" onClick=${() => saveTrace(id, false)}><${Icon} name="save" />Save trace</button>
        <button type="button" class="quiet" title="The traces of the whole conversation" onClick=${() => saveTrace(id, true)}><${Icon} name="save" />Save all</button>
        <button type="button" class="quiet" title="A link that opens this trace" onClick=${() => copyLink(id)}><${Icon} name="link" />Copy link</button>`}
      ${opened && html`<span class="tag">${opened.name}</span><button type="button" class="quiet" onClick=${() => view.set({ trace: null })}>Close it</button>`}
    </div>
    ${trace ? html`<${Legend} /><${Sheet} trace=${trace} running=${running} />` : html`<p class="hint faint">${live.problem || (id ? "Reading the tokens…" : "Send a message: its tokens appear here while the model writes them.")}</p>`}
  </div>`;
}

// The id of the response whose tokens are shown: the chosen one if it is of this conversation, else the newest.
const shownOf = (conversation, subject) => (subject && holds(conversation, subject) ? subject : newestOf(conversation)?.id);

function isGenerating(conversation, id) {
  const newest = newestOf(conversation);
  return Boolean(newest && newest.id === id && newest.running);
}

function newestOf(conversation) {
  for (const node of shown(conversation).toReversed()) {
    const step = node.steps?.findLast((each) => each.id);
    if (step) return { id: step.id, running: isRunning(node) };
  }
  return null;
}

const Legend = () => html`<ul class="legend" aria-label="Colours">${[
  ["analysis", "reasoning"], ["final", "answer"], ["call", "call"], ["commentary", "commentary"], ["tool", "tool"], ["user", "user"], ["system", "system"],
].map(([name, text]) => html`<li><i class=${`t ${name}`}></i>${text}</li>`)}<li><i class="t cached"></i>cached</li><li><i class="t dropped"></i>dropped next turn</li></ul>`;

function Sheet({ trace, running }) {
  const [width, setWidth] = useState(480);
  const [token, setToken] = useState(null);
  const letter = useMemo(measure, []);
  const { rows, height } = useMemo(() => rowsOf(trace, width - 34, letter), [trace, width, letter]);
  const onOver = (event) => {
    const place = event.target.dataset?.t;
    if (place === undefined) return;
    const [row, at] = place.split(":");
    setToken(rows[row]?.tokens?.[at] ?? null);
  };
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    setToken(neighbour(rows, token, step));
  };
  return html`<${Virtual} rows=${rows} height=${height} heights=${HEIGHTS} follows=${running} onResize=${setWidth}
      draw=${(row, at) => drawRow(row, at, token)} onMouseOver=${onOver} onClick=${onOver} onKeyDown=${onKey} aria-label="Tokens; arrow keys move between them" />
    <${Inspector} trace=${trace} token=${token} />`;
}

function neighbour(rows, token, step) {
  const all = rows.flatMap((row) => row.tokens ?? []);
  return all[all.indexOf(token) + step] ?? token;
}

function measure() {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `13px ${getComputedStyle(document.documentElement).getPropertyValue("--mono")}`;
  return context.measureText("m".repeat(100)).width / 100;
}
