// The workbench: the exact prompt of a request, edited by hand, continued from any token, two runs side by side.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { baseUrl } from "../lib/api.js";
import { copy } from "../lib/files.js";
import { useShared } from "../lib/state.js";
import { notice } from "../ui/view.js";
import { bench, editPrompt, runBoth, showPrompt } from "./bench.js";
import { compared } from "./diff.js";
import { parseRequest } from "./parse.js";
import { asCurl, asJavaScript, asPython } from "./spell.js";
import { Strip } from "./strip.js";

const SPELLINGS = [["curl", asCurl], ["Python", asPython], ["JavaScript", asJavaScript]];

export function Workbench() {
  const { request, text, tokens, cut, other, a, b, runs, part } = useShared(bench);
  const [busy, setBusy] = useState(false);
  const place = useRef();
  // A reader who comes from a token in the tokens view sees that token first.
  useEffect(() => place.current.querySelector(".strip .t.last")?.scrollIntoView({ block: "center" }), []);
  useEffect(() => {
    if (part !== null) show(".results");
  }, [runs, part]);
  const show = (name) => place.current?.querySelector(name)?.scrollIntoView({ block: "start", behavior: "instant" });
  const guarded = (work, shows = null) => async () => {
    setBusy(true);
    notice("");
    try {
      await work();
      if (shows) setTimeout(() => show(shows));
    } catch (error) {
      notice(error.message);
    } finally {
      setBusy(false);
    }
  };
  const take = (spell) => guarded(() => copy(spell(baseUrl(), parseRequest(request))));
  const edit = (event) => editPrompt(event.target.value).catch((error) => notice(error.message));
  // Each beside the first; the first beside the newest.
  const differences = useMemo(() => runs.map((run, at) => compared(idsOf(runs.at(at ? 0 : -1)), idsOf(run))), [runs]);

  return html`<div class="scroll workbench" ref=${place}>
    <label>A request: JSON of any API, curl, Python, or Harmony text<textarea class="mono" rows="5" spellcheck="false" value=${request} onInput=${(e) => bench.set({ request: e.target.value })}></textarea></label>
    <div class="row-of"><button type="button" class="primary" disabled=${busy} onClick=${guarded(showPrompt, ".prompt")}>Show its prompt</button>
      <span class="faint">Copy as</span>${SPELLINGS.map(([name, spell]) => html`<button type="button" class="quiet" onClick=${take(spell)}>${name}</button>`)}</div>
    ${text && html`<label class="prompt">The prompt; special tokens may be written out<textarea class="mono" rows="8" spellcheck="false" value=${text} onInput=${edit}></textarea></label>
      <p class="faint">${tokens.length.toLocaleString()} tokens. Choose a token to continue after it. ${cut !== null && html`<button type="button" class="quiet" onClick=${() => bench.set({ cut: null })}>Use them all</button>`}</p>
      <${Strip} tokens=${tokens} cut=${cut} onChoose=${(at) => bench.set({ cut: at })} label="Tokens of the prompt" />
      <div class="runs"><${Knobs} name="Run A" value=${a} set=${(value) => bench.set({ a: value })} /><${Knobs} name="Run B" value=${b} set=${(value) => bench.set({ b: value })} /></div>
      <label class="check"><input type="checkbox" checked=${other !== null} onChange=${(e) => bench.set({ other: e.target.checked ? text : null })} />Run B has a prompt of its own</label>
      ${other !== null && html`<label>The prompt of Run B<textarea class="mono" rows="8" spellcheck="false" value=${other} onInput=${(e) => bench.set({ other: e.target.value })}></textarea></label>`}
      <button type="button" class="primary" disabled=${busy || !tokens.length} onClick=${guarded(runBoth, ".results")}>${busy ? "Running…" : "Run both"}</button>`}
    ${runs.length > 0 && html`<p class="faint results" role="status">${summary(part, differences[0].first)}</p>
      <div class="runs">${runs.map((run, at) => html`<${Result} key=${run.name} run=${run} own=${differences[at].ownB} />`)}</div>`}
  </div>`;
}

const idsOf = (run) => run.tokens.map((token) => token.id);

function summary(part, first) {
  if (part !== null) return "What it said, and what it would have said. Another alternative of the same token joins them.";
  return first === null ? "Both runs are equal." : `The runs part at token ${first + 1}.`;
}

function Knobs({ name, value, set }) {
  const field = (key) => (event) => set({ ...value, [key]: event.target.value });
  return html`<fieldset class="card"><legend class="tag">${name}</legend><div class="knobs">
    <label>Temperature<input type="number" min="0" step="0.1" value=${value.temperature} onInput=${field("temperature")} /></label>
    <label>Seed<input type="number" placeholder="none" value=${value.seed} onInput=${field("seed")} /></label>
    <label>Output limit<input type="number" min="1" value=${value.max_tokens} onInput=${field("max_tokens")} /></label>
    <label>Effort<select value=${value.effort} onChange=${field("effort")}><option value="">as it is</option>${["low", "medium", "high"].map((e) => html`<option value=${e}>${e}</option>`)}</select></label></div></fieldset>`;
}

const Result = ({ run: { name, tokens, seconds, finish }, own }) => html`<div><p class="faint">${name}: ${tokens.length} tokens${finish && `, ${seconds.toFixed(2)} s, ${finish}`}</p>
  <${Strip} tokens=${tokens} own=${own} label=${`Tokens of ${name}`} /></div>`;
