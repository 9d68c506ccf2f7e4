// The user's own functions and MCP servers, declared in a form or pasted as JSON.
import { html, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { options } from "../chat/options.js";
import { IconButton } from "./icons.js";

export const WEATHER = {
  name: "get_weather",
  description: "The current weather of a place.",
  parameters: JSON.stringify({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }, null, 2),
  answers: [],
};

export function Functions() {
  const functions = useShared(options, (o) => o.functions);
  const [pasted, setPasted] = useState(null);
  const [problem, setProblem] = useState("");
  const put = (at, fields) => options.set({ functions: functions.with(at, { ...functions[at], ...fields }) });
  const paste = () => {
    try {
      options.set({ functions: [...functions, ...fromJson(JSON.parse(pasted))] });
      setPasted(null);
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<section data-part="functions"><h3>Functions</h3>
    <p class="faint">The model calls them. You write the results, or list some that are sent without asking.</p>
    ${functions.map((each, at) => html`<div class="card" key=${at}>
      <div class="row-of"><input aria-label="Name" class="mono" value=${each.name} onInput=${(e) => put(at, { name: e.target.value })} />
        <${IconButton} icon="trash" label=${`Remove ${each.name}`} onClick=${() => options.set({ functions: functions.toSpliced(at, 1) })} /></div>
      <label class="wide">What it does<input value=${each.description} onInput=${(e) => put(at, { description: e.target.value })} /></label>
      <label class="wide">Parameters, as JSON schema<textarea class="mono" rows="5" value=${each.parameters} onInput=${(e) => put(at, { parameters: e.target.value })}></textarea></label>
      <${Answers} answers=${each.answers ?? []} set=${(answers) => put(at, { answers })} /></div>`)}
    <div class="row-of"><button type="button" onClick=${() => options.set({ functions: [...functions, { ...WEATHER }] })}>Add a function</button>
      <button type="button" class="quiet" onClick=${() => setPasted(pasted === null ? "" : null)}>Paste JSON</button></div>
    ${pasted !== null && html`<label class="wide">A tool or a list of tools<textarea class="mono" rows="5" value=${pasted} onInput=${(e) => setPasted(e.target.value)}></textarea></label>
      <button type="button" onClick=${paste}>Use it</button>`}
    ${problem && html`<p class="bad">${problem}</p>`}
  </section>`;
}

// Results that are sent without asking: the first one whose text occurs in the arguments of the call.
function Answers({ answers, set }) {
  const put = (at, fields) => set(answers.with(at, { ...answers[at], ...fields }));
  return html`${answers.map((each, at) => html`<div class="row-of canned" key=${at}>
      <input class="mono" aria-label="Arguments contain" placeholder="any arguments" value=${each.when} onInput=${(e) => put(at, { when: e.target.value })} />
      <input class="mono" aria-label="Result that is sent" placeholder='{"temperature": 18}' value=${each.result} onInput=${(e) => put(at, { result: e.target.value })} />
      <${IconButton} icon="trash" label="Remove this result" onClick=${() => set(answers.toSpliced(at, 1))} /></div>`)}
    <button type="button" class="quiet" onClick=${() => set([...answers, { when: "", result: "" }])}>Add a result that is sent without asking</button>`;
}

// Tools of either API's form.
function fromJson(given) {
  return [given].flat().map((tool) => {
    const declared = tool.function ?? tool;
    if (!declared.name) throw new Error("A tool needs a name.");
    return {
      name: declared.name,
      description: declared.description ?? "",
      parameters: JSON.stringify(declared.parameters ?? { type: "object", properties: {} }, null, 2),
      answers: [],
    };
  });
}

export function McpServers() {
  const servers = useShared(options, (o) => o.mcp);
  const put = (at, fields) => options.set({ mcp: servers.with(at, { ...servers[at], ...fields }) });
  return html`<section><h3>MCP servers</h3>
    ${servers.map((each, at) => html`<div class="card" key=${at}>
      <div class="row-of"><input aria-label="Label" placeholder="label" value=${each.label} onInput=${(e) => put(at, { label: e.target.value })} />
        <${IconButton} icon="trash" label="Remove the server" onClick=${() => options.set({ mcp: servers.toSpliced(at, 1) })} /></div>
      <label class="wide">Address; empty for one that the server's operator has named<input value=${each.url} placeholder="https://…/mcp" onInput=${(e) => put(at, { url: e.target.value })} /></label>
      <label class="check"><input type="checkbox" checked=${each.approval} onChange=${(e) => put(at, { approval: e.target.checked })} />Ask me before each call</label></div>`)}
    <button type="button" onClick=${() => options.set({ mcp: [...servers, { label: "", url: "", approval: true }] })}>Add a server</button>
  </section>`;
}
