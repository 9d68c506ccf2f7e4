// The items of a response: reasoning that folds, answers with their sources, tools at work.
import { html, useMemo, useState } from "../vendor/preact.js";
import { Code, Markdown } from "../lib/markdown.js";
import { messageText } from "../chat/tree.js";
import { Files } from "./container.js";
import { isWeb, Sources } from "./sources.js";

// An item is drawn again only when it changes: those before a growing one stay as they are.
export function Item({ item, time, count, open, waits, response }) {
  const View = VIEWS[item.type] ?? Unknown;
  return useMemo(() => html`<${View} item=${item} time=${time} count=${count} open=${open} waits=${waits} response=${response} />`, [item, time, count, open, waits, response]);
}

function Fold({ title, note, open, kind, children }) {
  const [chosen, setChosen] = useState(null); // null: until the user decides, it follows the stream
  const shown = chosen ?? open;
  return html`<details class=${`fold ${kind}`} open=${shown}>
    <summary onClick=${(event) => (event.preventDefault(), setChosen(!shown))}><span class="dot"></span>${title}<span class="faint">${note}</span></summary>
    ${shown && html`<div class="inside">${children}</div>`}
  </details>`;
}

function seconds(time) {
  if (!time?.ended) return "";
  const took = (time.ended - time.began) / 1000;
  return took < 0.1 ? "" : `${took.toFixed(1)} s`;
}

function Reasoning({ item, time, count, open }) {
  const text = messageText(item) || (item.summary ?? []).map((part) => part.text).join("\n");
  const note = [count && `${count} tokens`, seconds(time)].filter(Boolean).join(" · ");
  return html`<${Fold} kind="analysis" title=${open ? "Reasoning…" : "Reasoning"} note=${note} open=${open}><div class="plain">${text}</div><//>`;
}

function Message({ item, response }) {
  const sources = (item.content ?? []).flatMap((part) => part.annotations ?? []);
  const cited = sources.filter((each) => each.type === "url_citation");
  const files = [...new Set(sources.filter((each) => each.type === "file_citation").map((each) => each.filename))];
  return html`<div class=${item.phase === "commentary" ? "answer preamble" : "answer"}>
    <${Markdown} text=${messageText(item)} />
    ${cited.length > 0 && html`<${Sources} cited=${cited} response=${response} />`}
    ${files.length > 0 && html`<p class="faint" aria-label="Files">From ${files.join(", ")}</p>`}
  </div>`;
}

function Search({ item, open }) {
  const { action = {} } = item;
  const what = { search: "Searched", open_page: "Opened", find_in_page: "Looked for" }[action.type] ?? "Browsed";
  const target = action.query || action.pattern || action.url || "";
  const hits = item.results ?? action.sources ?? [];
  return html`<${Fold} kind="tool" title=${`${what} ${target ? `“${target.slice(0, 80)}”` : ""}`} note=${item.status === "completed" ? "" : item.status} open=${open}>
    ${action.url && html`<p><${Address} url=${action.url} /></p>`}
    <ul class="hits">${hits.map((hit) => html`<li><${Address} url=${hit.url} title=${hit.title} />${hit.snippet && html`<p class="faint">${hit.snippet}</p>`}</li>`)}</ul>
  <//>`;
}

function FileSearch({ item, open }) {
  const { queries = [], results } = item;
  return html`<${Fold} kind="tool" title=${`Searched the files ${queries.length ? `for “${queries.join("”, “").slice(0, 80)}”` : ""}`} note=${item.status === "completed" ? "" : item.status.replaceAll("_", " ")} open=${open}>
    <ul class="hits">${(results ?? []).map((hit) => html`<li><strong>${hit.filename}</strong><p class="faint">${hit.text}</p></li>`)}</ul><//>`;
}

const Address = ({ url, title }) =>
  isWeb(url) ? html`<a href=${url} target="_blank" rel="noopener noreferrer">${title || url}</a>` : html`<span>${title || url}</span>`;

function Python({ item, time, open }) {
  const outputs = item.outputs ?? [];
  const isOver = item.status === "completed";
  return html`<${Fold} kind="tool" title=${isOver ? "Ran Python" : "Python"} note=${isOver ? seconds(time) : item.status.replaceAll("_", " ")} open=${open || outputs.some((each) => each.type === "image")}>
    <${Code} code=${item.code ?? ""} language="python" />
    ${outputs.map((each) => each.type === "image"
      ? /^data:image\//.test(each.url ?? "") ? html`<img class="plot" src=${each.url} alt="A plot by the code" />` : html`<${Address} url=${each.url} />`
      : html`<pre class="output" tabindex="0">${each.logs}</pre>`)}
  <//>
  ${isOver && item.container_id && html`<${Files} container=${item.container_id} ended=${time?.ended} />`}`;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text ?? "";
  }
}

const Call = ({ item, open, waits }) => html`<${Fold} kind="call" title=${`Called ${item.name}`} note=${waits ? "waits for your answer" : item.status === "completed" ? "" : item.status} open=${open || waits}>
  <${Code} code=${open ? item.arguments ?? item.input ?? "" : pretty(item.arguments ?? item.input)} language="json" /><//>`;

const Mcp = ({ item, open }) => html`<${Fold} kind="tool" title=${`${item.server_label}: ${item.name}`} note=${item.status === "completed" ? "" : item.status} open=${open}>
  <${Code} code=${pretty(item.arguments)} language="json" label="arguments" />
  ${item.output && html`<pre class="output" tabindex="0">${item.output}</pre>`}
  ${item.error && html`<pre class="output bad" tabindex="0">${typeof item.error === "string" ? item.error : JSON.stringify(item.error, null, 1)}</pre>`}<//>`;

const McpList = ({ item }) => html`<${Fold} kind="tool" title=${`Tools of ${item.server_label}`} note=${`${item.tools?.length ?? 0}`} open=${false}>
  <ul class="hits" tabindex="0">${(item.tools ?? []).map((tool) => html`<li><code>${tool.name}</code><p class="faint">${tool.description}</p></li>`)}</ul>${item.error && html`<p class="bad">${JSON.stringify(item.error)}</p>`}<//>`;

const Approval = ({ item, waits }) => html`<${Fold} kind="call" title=${`${item.server_label}: ${item.name}`} note=${waits ? "waits for your approval" : "needed approval"} open=${waits}><${Code} code=${pretty(item.arguments)} language="json" /><//>`;

const Unknown = ({ item }) => html`<${Fold} kind="tool" title=${item.type} open=${false}><${Code} code=${JSON.stringify(item, null, 1)} language="json" /><//>`;

const VIEWS = {
  reasoning: Reasoning,
  message: Message,
  web_search_call: Search,
  file_search_call: FileSearch,
  code_interpreter_call: Python,
  function_call: Call,
  custom_tool_call: Call,
  mcp_call: Mcp,
  mcp_list_tools: McpList,
  mcp_approval_request: Approval,
};
