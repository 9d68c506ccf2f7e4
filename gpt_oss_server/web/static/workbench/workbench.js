// The workbench: the exact prompt of a request, edited by hand, continued from any token, two runs side by side.
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { baseUrl } from "../lib/api.js";
import { copy } from "../lib/files.js";
import { notice } from "../ui/view.js";
import { compared } from "./diff.js";
import { parseRequest } from "./parse.js";
import { rendered, run, tokenized, withEffort } from "./run.js";
import { asCurl, asJavaScript, asPython } from "./spell.js";
import { Strip } from "./strip.js";

const EXAMPLE = '{\n  "input": "What is 17 times 23?",\n  "reasoning": {"effort": "low"}\n}';
const knobs = (temperature, seed) => ({ temperature, seed, max_tokens: 128, effort: "" });

export function Workbench() {
  const [request, setRequest] = useState(EXAMPLE);
  const [text, setText] = useState("");
  const [tokens, setTokens] = useState([]);
  const [cut, setCut] = useState(null);
  const [a, setA] = useState(knobs(0, ""));
  const [b, setB] = useState(knobs(1, 1));
  const [runs, setRuns] = useState({});
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    if (!text) return undefined;
    const timer = setTimeout(() => tokenized(text).then(setTokens, (error) => notice(error.message)), 250);
    return () => clearTimeout(timer);
  }, [text]);

  const guarded = (work) => async () => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      notice(error.message);
    } finally {
      setBusy(false);
    }
  };
  const show = guarded(async () => {
    setText(await rendered(parseRequest(request)));
    setCut(null);
    setRuns({});
  });
  const one = async (setting) => {
    const whole = setting.effort ? await tokenized(withEffort(text, setting.effort)) : await tokenized(text);
    return run(whole.slice(0, cut === null ? undefined : cut + 1).map((token) => token.id), setting);
  };
  const both = guarded(async () => {
    const [first, second] = await Promise.all([one(a), one(b)]);
    setRuns({ a: first, b: second });
  });
  const take = (spell) => guarded(() => copy(spell(baseUrl(), parseRequest(request))));
  const differences = useMemo(() => runs.a && runs.b && compared(runs.a.tokens.map((t) => t.id), runs.b.tokens.map((t) => t.id)), [runs]);

  return html`<div class="scroll workbench">
    <label>A request: JSON, curl or Python<textarea class="mono" rows="5" spellcheck="false" value=${request} onInput=${(e) => setRequest(e.target.value)}></textarea></label>
    <div class="row-of"><button type="button" class="primary" disabled=${busy} onClick=${show}>Show its prompt</button>
      <span class="faint">Copy as</span>${[["curl", asCurl], ["Python", asPython], ["JavaScript", asJavaScript]].map(([name, spell]) => html`<button type="button" class="quiet" onClick=${take(spell)}>${name}</button>`)}</div>
    ${text && html`<label>The prompt; special tokens may be written out<textarea class="mono" rows="8" spellcheck="false" value=${text} onInput=${(e) => (setText(e.target.value), setCut(null))}></textarea></label>
      <p class="faint">${tokens.length.toLocaleString()} tokens. Choose a token to continue after it. ${cut !== null && html`<button type="button" class="quiet" onClick=${() => setCut(null)}>Use them all</button>`}</p>
      <${Strip} tokens=${tokens} cut=${cut} onChoose=${setCut} label="Tokens of the prompt" />
      <div class="runs"><${Knobs} name="Run A" value=${a} set=${setA} /><${Knobs} name="Run B" value=${b} set=${setB} /></div>
      <button type="button" class="primary" disabled=${busy || !tokens.length} onClick=${both}>${busy ? "Running…" : "Run both"}</button>`}
    ${differences && html`<p class="faint">${differences.first === null ? "Both runs are equal." : `The runs part at token ${differences.first + 1}.`}</p>
      <div class="runs"><${Result} run=${runs.a} own=${differences.ownA} name="Run A" /><${Result} run=${runs.b} own=${differences.ownB} name="Run B" /></div>`}
  </div>`;
}

function Knobs({ name, value, set }) {
  const field = (key) => (event) => set({ ...value, [key]: event.target.value });
  return html`<fieldset class="card"><legend class="tag">${name}</legend><div class="knobs">
    <label>Temperature<input type="number" min="0" step="0.1" value=${value.temperature} onInput=${field("temperature")} /></label>
    <label>Seed<input type="number" placeholder="none" value=${value.seed} onInput=${field("seed")} /></label>
    <label>Output limit<input type="number" min="1" value=${value.max_tokens} onInput=${field("max_tokens")} /></label>
    <label>Effort<select value=${value.effort} onChange=${field("effort")}><option value="">as it is</option>${["low", "medium", "high"].map((e) => html`<option>${e}</option>`)}</select></label></div></fieldset>`;
}

const Result = ({ run: done, own, name }) => html`<div><p class="faint">${name}: ${done.tokens.length} tokens, ${done.seconds.toFixed(2)} s, ${done.finish}</p>
  <${Strip} tokens=${done.tokens} own=${own} label=${`Tokens of ${name}`} /></div>`;
