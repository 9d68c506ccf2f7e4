// The switches at the composer: what the next message goes with, in sight with the setup closed.
import { html } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { hasSchema, isOffered, isOn, offers, options, TOOLS } from "../chat/options.js";
import { server } from "./server.js";
import { showSetup } from "./view.js";

const EFFORTS = ["minimal", "low", "medium", "high"];
const set = (name) => (event) => options.set({ [name]: event.target.value });

export function Chips() {
  const o = useShared(options);
  const { models } = useShared(server);
  useShared(offers);
  const functions = o.functions.filter((each) => each.name).length;
  return html`<div class="chips" role="group" aria-label="What goes with the message">
    ${models.length > 1 && html`<select class="chip" aria-label="Model of the next answer" value=${o.model} onChange=${set("model")}>
      <option value="">${models[0].id}</option>${models.slice(1).map((m) => html`<option value=${m.id}>${m.id}</option>`)}</select>`}
    <select class=${`chip ${o.effort ? "on" : ""}`} aria-label="Effort of the next answer" value=${o.effort} onChange=${set("effort")}>
      <option value="">Effort</option>${EFFORTS.map((each) => html`<option value=${each}>${each}</option>`)}</select>
    ${Object.entries(TOOLS).filter(([name]) => isOffered(name) || o[name]).map(([name, each]) => html`<${Chip} name=${each.name} on=${isOn(o, name)}
      about=${isOffered(name) ? `The model may use ${each.name}` : "This server does not offer it; Setup has the reason"} act=${() => (each.needs && !o[each.needs].length ? showSetup(name) : options.set({ [name]: !isOn(o, name) }))} />`)}
    <${Chip} name=${functions ? `Functions ${functions}` : "Functions"} on=${functions > 0 && o.calls} about="Functions of your own, which the model may call"
      act=${() => (functions ? options.set({ calls: !o.calls }) : showSetup("functions"))} />
    <${Chip} name="Schema" on=${hasSchema(o)} about="The JSON schema that the answer follows"
      act=${() => (o.schema.trim() ? options.set({ binds: !o.binds }) : showSetup("schema"))} />
  </div>`;
}

const Chip = ({ name, on, about, act }) => html`<button type="button" class=${`chip ${on ? "on" : ""}`} aria-pressed=${on} title=${about} onClick=${act}>${name}</button>`;
