// A grid of what was opened from files, with filters; and, above a conversation of it, the way back and on.
import { html, useMemo, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { ALL, collection, fitting, showCollection } from "../chat/collection.js";
import { conversations, take } from "../chat/store.js";
import { Icon, IconButton } from "./icons.js";
import { openTrace } from "./traces.js";
import { notice } from "./view.js";

const MOST = 120; // cards that are drawn until more are asked for
const WITH = { "": "All", reasoning: "With reasoning", calls: "With calls", preambles: "With preambles", instructions: "With instructions", slips: "With slips", unanswered: "Without an answer" };

export function look({ name, conversation, trace }) {
  try {
    if (trace) openTrace(name, trace);
    else take(conversations.get().all[conversation.id] ?? conversation);
  } catch (error) {
    notice(`${name} cannot be opened: ${error.message}.`);
  }
}

export function Collection() {
  const { entries, filter } = useShared(collection);
  const [most, setMost] = useState(MOST);
  const tools = useMemo(() => [...new Set(entries.flatMap((each) => each.about.tools))].sort(), [entries]);
  const kinds = useMemo(() => Object.keys(WITH).filter((kind) => !kind || entries.some((each) => each.about.has[kind])), [entries]);
  const found = useMemo(() => fitting({ entries, filter }), [entries, filter]);
  const by = (name) => (event) => collection.set({ filter: { ...filter, [name]: event.target.value } });
  return html`<section class="collection" aria-label="Opened files" tabindex="0">
    <div class="row-of filters">
      <label class="search"><${Icon} name="search" /><input type="search" placeholder="Search all of them" aria-label="Search the opened files" value=${filter.query} onInput=${by("query")} /></label>
      <select aria-label="Kind" value=${filter.having} onChange=${by("having")}>${kinds.map((kind) => html`<option value=${kind}>${WITH[kind]}</option>`)}</select>
      ${tools.length > 0 && html`<select aria-label="Tool" value=${filter.tool} onChange=${by("tool")}><option value="">Any tool</option>${tools.map((each) => html`<option value=${each}>${each}</option>`)}</select>`}
      <span class="faint" role="status">${found.length === entries.length ? entries.length : `${found.length} of ${entries.length}`}</span>
      ${filter !== ALL && html`<button type="button" class="quiet" onClick=${() => collection.set({ filter: ALL })}>Show all</button>`}
    </div>
    <ul class="grid">${found.slice(0, most).map((entry) => html`<${Card} entry=${entry} />`)}</ul>
    ${found.length > most && html`<button type="button" onClick=${() => setMost(most + MOST)}>Show more</button>`}
    ${!found.length && html`<p class="faint">Nothing fits.</p>`}
  </section>`;
}

function Card({ entry }) {
  const { name, trace, about } = entry;
  return html`<li><button type="button" class="card entry-card" onClick=${() => look(entry)}>
    <span class="faint name">${name}</span><strong>${about.question.slice(0, 140) || "No question"}</strong>
    <span class="faint said">${about.answer.slice(0, 200)}</span>
    <span class="row-of">${trace && html`<span class="tag">trace</span>`}<span class="tag">${about.count} ${about.count === 1 ? "message" : "messages"}</span>
      ${about.has.slips && html`<span class="tag bad">slips</span>`}${about.tools.slice(0, 3).map((each) => html`<span class="tag">${each}</span>`)}</span></button></li>`;
}

// Where a conversation of the files is read: back to all of them, and to the one before and after.
export function Browsing() {
  const { entries, filter } = useShared(collection);
  const open = useShared(conversations, (state) => state.open);
  const all = useMemo(() => fitting({ entries, filter }).filter((each) => each.conversation), [entries, filter]);
  const at = all.findIndex((each) => each.conversation.id === open);
  if (at < 0) return null;
  const go = (to) => look(all[to]);
  return html`<nav class="browsing row-of" aria-label="Opened files"><button type="button" class="quiet" onClick=${() => showCollection()}>All opened files</button>
    <span class="faint">${all[at].name} · ${at + 1} of ${all.length}</span>
    <${IconButton} icon="left" label="The one before" disabled=${at === 0} onClick=${() => go(at - 1)} />
    <${IconButton} icon="right" label="The next one" disabled=${at === all.length - 1} onClick=${() => go(at + 1)} /></nav>`;
}
