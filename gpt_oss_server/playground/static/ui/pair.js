// Two answers to one question side by side: another model, effort or temperature beside the answer that is there.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { beside } from "../chat/runner.js";
import { options } from "../chat/options.js";
import { update } from "../chat/store.js";
import { change, choose } from "../chat/tree.js";
import { Assistant } from "./message.js";
import { server } from "./server.js";

const EFFORTS = ["minimal", "low", "medium", "high"];

export function CompareForm({ conversation, node, close }) {
  const { models } = useShared(server);
  const now = useShared(options);
  const [given, setGiven] = useState({ model: now.model, effort: now.effort, temperature: now.temperature });
  const field = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const place = useRef();
  useEffect(() => place.current.scrollIntoView({ block: "nearest" }), []);
  const submit = (event) => {
    event.preventDefault();
    close();
    beside(conversation, node, given);
  };
  return html`<form ref=${place} class="card row-of compare" aria-label="Another answer beside this one" onSubmit=${submit}>
    ${models.length > 1 && html`<label>Model<select value=${given.model} onChange=${field("model")}><option value="">${models[0].id}</option>${models.slice(1).map((m) => html`<option value=${m.id}>${m.id}</option>`)}</select></label>`}
    <label>Effort<select value=${given.effort} onChange=${field("effort")}><option value="">default</option>${EFFORTS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
    <label>Temperature<input type="number" min="0" step="0.1" placeholder="default" value=${given.temperature} onInput=${field("temperature")} /></label>
    <button class="primary">Answer beside it</button><button type="button" class="quiet" onClick=${close}>Cancel</button></form>`;
}

function about(node, models) {
  const { model, effort, temperature } = node.with ?? {};
  if (!node.with) return "The answer before";
  return [...(models.length > 1 ? [model || "the first model"] : []), effort ? `effort ${effort}` : "default effort", temperature === "" ? "default temperature" : `temperature ${temperature}`].join(", ");
}

export function Pair({ conversation, nodes, versions }) {
  const { models } = useShared(server);
  const keep = (node) => update(conversation, (now) => choose(change(now, node.parent, { pair: null }), node.id));
  return html`<div class="pair">${nodes.map((node) => html`<section key=${node.id} aria-label=${about(node, models)}>
    <p class="row-of"><span class="tag">${about(node, models)}</span><button type="button" class="quiet" onClick=${() => keep(node)}>Keep this one</button></p>
    <${Assistant} conversation=${conversation} node=${node} versions=${versions} /></section>`)}</div>`;
}
