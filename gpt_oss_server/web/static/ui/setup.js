// The setup: instructions, reasoning, sampling, the form of the answer, and tools.
import { html } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { DEFAULTS, options } from "../chat/options.js";
import { server } from "./server.js";
import { Functions, McpServers } from "./tools.js";

const set = (name) => (event) => options.set({ [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });

export function Setup() {
  const o = useShared(options);
  const { models } = useShared(server);
  return html`<div class="scroll setup">
    <section><h3>Instructions</h3>
      <label class="wide">The developer's message<textarea rows="4" value=${o.instructions} onInput=${set("instructions")} placeholder="You answer in one sentence."></textarea></label></section>
    <section><h3>Model</h3>
      ${models.length > 1 && html`<label>Model<select value=${o.model} onChange=${set("model")}><option value="">${models[0].id}</option>${models.slice(1).map((m) => html`<option>${m.id}</option>`)}</select></label>`}
      <label>Reasoning effort<select value=${o.effort} onChange=${set("effort")}><option value="">default</option>${["minimal", "low", "medium", "high"].map((e) => html`<option>${e}</option>`)}</select></label>
      <${Number} name="budget" label="Reasoning budget" hint="tokens" /><${Number} name="max_output_tokens" label="Output limit" hint="tokens" />
      <${Number} name="temperature" label="Temperature" step="0.1" /><${Number} name="top_p" label="Top p" step="0.05" /><${Number} name="seed" label="Seed" />
      <label class="check"><input type="checkbox" checked=${o.scores} onChange=${set("scores")} />Probabilities of tokens</label></section>
    <section><h3>Form of the answer</h3>
      <label class="wide">JSON schema, enforced<textarea class="mono" rows="4" value=${o.schema} onInput=${set("schema")} placeholder='{"type": "object", "properties": {…}}'></textarea></label>
      <${SchemaState} text=${o.schema} /></section>
    <section><h3>Built-in tools</h3>
      <label class="check"><input type="checkbox" checked=${o.browser} onChange=${set("browser")} />Browser</label>
      <label class="check"><input type="checkbox" checked=${o.python} onChange=${set("python")} />Python</label></section>
    <${Functions} /><${McpServers} />
    <button type="button" class="quiet" onClick=${() => options.set({ ...DEFAULTS })}>Reset everything</button>
  </div>`;
}

function Number({ name, label, hint = "default", step = "1" }) {
  const value = useShared(options, (o) => o[name]);
  return html`<label>${label}<input type="number" step=${step} min="0" placeholder=${hint} value=${value} onInput=${set(name)} /></label>`;
}

function SchemaState({ text }) {
  if (!text.trim()) return null;
  try {
    JSON.parse(text);
    return html`<p class="good">Valid JSON.</p>`;
  } catch (error) {
    return html`<p class="bad">${error.message}</p>`;
  }
}
