// The Harmony view: prompts and completions as tokens, slips with what the decoder did, and the library's reading.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { isRunning } from "../chat/runner.js";
import { conversations, current } from "../chat/store.js";
import { holds, shown } from "../chat/tree.js";
import { Icon } from "../ui/icons.js";
import { copyLink, openDialog, saveTrace } from "../ui/traces.js";
import { view } from "../ui/view.js";
import { Changes } from "./changes.js";
import { found } from "./find.js";
import { MODES } from "./heat.js";
import { Inspector } from "./inspector.js";
import { useTrace } from "./live.js";
import { HEIGHTS, rowsOf } from "./rows.js";
import { drawRow } from "./row.js";
import { Waterfall } from "./waterfall.js";
import { Virtual } from "./virtual.js";

export function Tokens() {
  const { trace: opened, subject } = useShared(view);
  // Not the conversation, which changes with every token: the rows would all be drawn again.
  const id = useShared(conversations, (state) => shownOf(current(state), subject));
  const running = useShared(conversations, (state) => isGenerating(current(state), id));
  const before = useShared(conversations, (state) => beforeOf(current(state), id));
  const [compares, setCompares] = useState(false);
  const live = useTrace(opened ? null : id, running);
  const trace = opened?.trace ?? live.trace;
  return html`<div class="tokens-view">
    <div class="row-of actions">
      <button type="button" class="quiet" onClick=${openDialog}><${Icon} name="open" />Open a trace</button>
      ${!opened && id && html`<button type="button" class="quiet" onClick=${() => saveTrace(id, false)}><${Icon} name="save" />Save trace</button>
        <button type="button" class="quiet" title="The traces of the whole conversation" onClick=${() => saveTrace(id, true)}><${Icon} name="save" />Save all</button>
        <button type="button" class="quiet" title="A link that opens this trace" onClick=${() => copyLink(id)}><${Icon} name="link" />Copy link</button>
        ${before && html`<button type="button" class="quiet" title="This prompt and the turn before" onClick=${() => setCompares(true)}>Changes</button>`}`}
      ${opened && html`<span class="tag">${opened.name}</span><button type="button" class="quiet" onClick=${() => view.set({ trace: null })}>Close it</button>`}
    </div>
    ${compares && html`<${Changes} id=${id} before=${before} close=${() => setCompares(false)} />`}
    ${trace ? html`<${Legend} /><${Sheet} trace=${trace} running=${running} asks=${!opened} />` : html`<p class="hint faint">${live.problem || (id ? "Reading the tokens…" : "Send a message: its tokens appear here while the model writes them.")}</p>`}
  </div>`;
}

// The id of the response whose tokens are shown: the chosen one if it is of this conversation, else the newest.
const shownOf = (conversation, subject) => (subject && holds(conversation, subject) ? subject : newestOf(conversation)?.id);

// The response before one, on the branch that is shown.
function beforeOf(conversation, id) {
  const ids = shown(conversation).flatMap((node) => (node.steps ?? []).map((step) => step.id)).filter(Boolean);
  return ids[ids.indexOf(id) - 1] ?? null;
}

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

function Sheet({ trace, running, asks }) {
  const [width, setWidth] = useState(480);
  const [token, setToken] = useState(null);
  const [mode, setMode] = useState("channel");
  const [query, setQuery] = useState("");
  const [unfolded, setUnfolded] = useState(new Set());
  const [hit, setHit] = useState(0);
  const [timed, setTimed] = useState(false);
  const letter = useMemo(measure, []);
  const { rows, height } = useMemo(() => rowsOf(trace, width - 34, letter, (key) => query !== "" || unfolded.has(key)), [trace, width, letter, query !== "", unfolded]);
  const hits = useMemo(() => found(rows, query), [rows, query]);
  const look = useMemo(() => ({ mode, hits: new Set(hits.flatMap((each) => each.tokens)) }), [mode, hits]);
  const goal = useGoal(trace, rows, running, hits[hit]);
  const onOver = (event) => {
    const place = event.target.dataset?.t;
    if (place === undefined) return;
    const [row, at] = place.split(":");
    setToken(rows[row]?.tokens?.[at] ?? null);
  };
  const onClick = (event) => {
    const key = event.target.closest?.("[data-fold]")?.dataset.fold;
    if (key) setUnfolded((before) => new Set(before.has(key) ? [...before].filter((each) => each !== key) : [...before, key]));
    else onOver(event);
  };
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    setToken(neighbour(rows, token, step));
  };
  const next = (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    event.preventDefault();
    setHit((at) => (at + (event.shiftKey ? hits.length - 1 : 1)) % hits.length);
  };
  return html`<div class="row-of looks"><label class="search"><${Icon} name="search" /><input type="search" placeholder="Search the tokens" aria-label="Search the tokens" value=${query} onInput=${(e) => (setQuery(e.target.value), setHit(0))} onKeyDown=${next} /></label>
      ${query && html`<span class="faint" role="status">${hits.length ? `${hit + 1} of ${hits.length}` : "none"}</span>`}
      <button type="button" class=${`chip ${timed ? "on" : ""}`} aria-pressed=${timed} onClick=${() => setTimed(!timed)}>Times</button>
      <select aria-label="Colours of the tokens" value=${mode} onChange=${(e) => setMode(e.target.value)}>${Object.entries(MODES).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></div>
    ${timed && html`<${Waterfall} trace=${trace} />`}
    <${Virtual} rows=${rows} height=${height} heights=${HEIGHTS} follows=${running} goal=${goal} onResize=${setWidth}
      draw=${(row, at) => drawRow(row, at, token, look)} onMouseOver=${onOver} onClick=${onClick} onKeyDown=${onKey} aria-label="Tokens; arrow keys move between them" />
    <${Inspector} trace=${trace} token=${token} asks=${asks} />`;
}

// Where the list goes by itself: to the answer when a trace opens, and to what is searched for.
function useGoal(trace, rows, running, hit) {
  const { id } = trace.responses.at(-1).response;
  const started = useRef(null); // the response that was gone to, or followed
  const opens = started.current !== id;
  useEffect(() => {
    started.current = id;
  }, [id]);
  const at = rows.findLastIndex((row) => row.kind === "response");
  const answer = rows.find((row, number) => number > at && row.role === "completion");
  return useMemo(() => (hit ? { top: hit.top - 80 } : opens && !running && answer ? { top: answer.top } : null), [hit, opens && rows]);
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
