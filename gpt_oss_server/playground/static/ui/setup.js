// The setup: instructions, reasoning, sampling, the form of the answer, and tools.
import { html, useEffect, useState } from "../vendor/preact.js";
import { call } from "../lib/api.js";
import { useShared } from "../lib/state.js";
import { DEFAULTS, formatOf, isOn, offers, options, TOOLS } from "../chat/options.js";
import { TRANSPORTS } from "../chat/transports.js";
import { Forget } from "./key.js";
import { change, server, useModel } from "./server.js";
import { Stores } from "./stores.js";
import { Functions, McpServers } from "./tools.js";
import { notice } from "./view.js";

const set = (name) => (event) => options.set({ [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });

/** The state of a model that is loaded when it is needed. */
function Loading() {
  const model = useModel();
  const [busy, setBusy] = useState("");
  if (!model?.loadable) return null;
  const action = model.state === "loaded" ? "unload" : "load";
  const act = async () => {
    setBusy(`${action}ing …`);
    await change(action, model.id).catch((error) => notice(error.message));
    setBusy("");
  };
  return html`<p class="faint">This model is ${busy || model.state}. <button type="button" class="quiet" disabled=${busy} onClick=${act}>${action === "load" ? "Load" : "Unload"}</button></p>`;
}

export function Setup() {
  const o = useShared(options);
  const { models } = useShared(server);
  useShared(offers);
  return html`<div class="scroll setup">
    <section><h3>Instructions</h3>
      <label class="wide">The developer's message<textarea rows="4" value=${o.instructions} onInput=${set("instructions")} placeholder="You answer in one sentence."></textarea></label></section>
    <section><h3>Model</h3>
      ${models.length > 1 && html`<label>Model<select value=${o.model} onChange=${set("model")}><option value="">${models[0].id}</option>${models.slice(1).map((m) => html`<option value=${m.id}>${m.id}</option>`)}</select></label>`}
      <${Loading} />
      <label>Reasoning effort<select value=${o.effort} onChange=${set("effort")}><option value="">default</option>${["minimal", "low", "medium", "high"].map((e) => html`<option value=${e}>${e}</option>`)}</select></label>
      <${Number} name="budget" label="Reasoning budget" hint="tokens" /><${Number} name="max_output_tokens" label="Output limit" hint="tokens" />
      <${Number} name="temperature" label="Temperature" step="0.1" /><${Number} name="top_p" label="Top p" step="0.05" /><${Number} name="seed" label="Seed" />
      <label class="check"><input type="checkbox" checked=${o.scores} onChange=${set("scores")} />Probabilities of tokens</label></section>
    <section data-part="schema"><h3>Form of the answer</h3>
      <label class="wide">JSON schema, enforced<textarea class="mono" rows="4" value=${o.schema} onInput=${set("schema")} placeholder='{"type": "object", "properties": {…}}'></textarea></label>
      <${SchemaState} text=${o.schema} /></section>
    <section><h3>Built-in tools</h3>
      ${Object.entries(TOOLS).filter(([, each]) => !each.needs).map(([name, each]) => html`<label class="check"><input type="checkbox" checked=${isOn(o, name)} onChange=${set(name)} />${each.name}</label>
      <${ToolState} tool=${each.tool(o)} on=${isOn(o, name)} />`)}</section>
    <${Stores} /><${Functions} /><${McpServers} />
    <section><h3>Connection</h3>
      <label class="wide">Answers come over<select value=${o.transport} onChange=${set("transport")}>${Object.entries(TRANSPORTS).map(([name, each]) => html`<option value=${name}>${each.name}</option>`)}</select></label>
      <p class="faint">${TRANSPORTS[o.transport].about}</p>
      <${Forget} /></section>
    <button type="button" class="quiet" onClick=${() => options.set({ ...DEFAULTS })}>Reset everything</button>
  </div>`;
}

function Number({ name, label, hint = "default", step = "1" }) {
  const value = useShared(options, (o) => o[name]);
  return html`<label>${label}<input type="number" step=${step} min="0" placeholder=${hint} value=${value} onInput=${set(name)} /></label>`;
}

// What the server itself says about a part of a request, whose tokens it counts: its refusal, "" for none, null while
// there is no answer. The part is made again when its text changes; without a text there is none.
function useRefusal(text, part, wait = 0) {
  const [refusal, setRefusal] = useState(null);
  useEffect(() => {
    setRefusal(null);
    if (!text) return undefined;
    const control = new AbortController();
    const ask = async () => {
      try {
        await call("v1/responses/input_tokens", { method: "POST", body: { input: "", ...part() }, signal: control.signal });
        setRefusal("");
      } catch (error) {
        if (error.name !== "AbortError") setRefusal(error.message);
      }
    };
    const timer = setTimeout(ask, wait);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [text]);
  return refusal;
}

function SchemaState({ text }) {
  const refusal = useRefusal(text.trim(), () => formatOf(text), 400);
  if (refusal === null) return null;
  return html`<p class=${refusal ? "bad" : "good"} role="status">${refusal || "The server enforces it, and each answer is checked here."}</p>`;
}

// A tool that is switched on here may be off on the server, or not for this key.
function ToolState({ tool, on }) {
  const refusal = useRefusal(on ? tool.type : "", () => ({ tools: [tool] }));
  return refusal && html`<p class="bad" role="status">${refusal}</p>`;
}
