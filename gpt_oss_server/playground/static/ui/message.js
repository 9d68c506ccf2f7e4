// One message: the user's with its branches, the model's with its items.
import { html, useMemo, useState } from "../vendor/preact.js";
import { copy } from "../lib/files.js";
import { useShared } from "../lib/state.js";
import { lacking, nameOf } from "../chat/lacks.js";
import { options } from "../chat/options.js";
import { answer, edit, isRunning } from "../chat/runner.js";
import { update } from "../chat/store.js";
import { choose, lastStep, messageText, textOf } from "../chat/tree.js";
import { isOver, pending } from "../chat/apply.js";
import { checked } from "../lib/schema.js";
import { speedHere } from "../lib/speed.js";
import { Confidence } from "../harmony/confidence.js";
import { Calls } from "./calls.js";
import { IconButton } from "./icons.js";
import { Item } from "./items.js";
import { copyMessageLink } from "./links.js";
import { CompareForm } from "./pair.js";
import { inspect, view } from "./view.js";

function Branches({ conversation, node, versions }) {
  if (versions.length < 2) return null;
  const at = versions.indexOf(node.id);
  const go = (to) => update(conversation, (now) => choose(now, versions[to]));
  return html`<span class="branches">
    <${IconButton} icon="left" label="Previous version" disabled=${at === 0} onClick=${() => go(at - 1)} />
    <span>${at + 1} / ${versions.length}</span>
    <${IconButton} icon="right" label="Next version" disabled=${at === versions.length - 1} onClick=${() => go(at + 1)} /></span>`;
}

// A message has an address, and is marked while the page's address names it.
function Place({ node, class: kind, children, ...rest }) {
  const linked = useShared(view, (state) => state.message === node.id);
  return html`<article id=${`message-${node.id}`} class=${`message ${kind} ${linked ? "linked" : ""}`} ...${rest}>${children}</article>`;
}

export function User({ conversation, node, versions }) {
  const [text, setText] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    setText(null);
    if (text.trim()) edit(conversation, node, text);
  };
  return html`<${Place} class="user" node=${node} aria-label=${node.author ?? "You"}>
    ${node.author && html`<span class="tag">${node.author}</span>`}
    ${node.given?.length > 0 && html`<p class="faint">Sent without a result of the call above.</p>`}
    ${node.files?.length > 0 && html`<ul class="files">${node.files.map((file) => html`<li>${file.name}</li>`)}</ul>`}
    ${text === null
      ? html`<div class="bubble">${node.text}</div>`
      : html`<form class="edit" onSubmit=${submit}>
          <textarea aria-label="Edit the message" rows="3" value=${text} onInput=${(e) => setText(e.target.value)}></textarea>
          <div><button type="button" class="quiet" onClick=${() => setText(null)}>Cancel</button><button class="primary">Send as a new branch</button></div>
        </form>`}
    <div class="tools">
      <${Branches} conversation=${conversation} node=${node} versions=${versions} />
      <${IconButton} icon="copy" label="Copy" onClick=${() => copy(node.text)} />
      <${IconButton} icon="edit" label="Edit" onClick=${() => setText(node.text)} />
      <${IconButton} icon="link" label="Copy a link to this message" onClick=${() => copyMessageLink(node)} />
    </div>
  <//>`;
}

export function Assistant({ conversation, node, versions }) {
  const running = isRunning(node);
  const last = lastStep(node);
  const [heat, setHeat] = useState(false);
  const [compares, setCompares] = useState(false);
  const calls = last && !node.children.length ? pending(last) : [];
  return html`<${Place} class="assistant" node=${node} aria-label="The model" aria-busy=${running}>
    ${node.steps.map((step, number) => html`<div class="step" key=${number}>
      ${number > 0 && html`<${Given} input=${step.input} />`}
      ${step.items.map((item, at) => item && html`<${Item} key=${item.id ?? at} item=${item} time=${step.times[at]} count=${countOf(step, item, at)} open=${!isOver(step) && at === step.items.length - 1} waits=${calls.includes(item)} response=${step.id} />`)}
      ${step.schema && ["completed", "failed"].includes(step.status) && html`<${FollowsSchema} step=${step} />`}
      ${step.error && html`<p class="error" role="alert">${step.error}</p>`}
      ${step.status === "incomplete" && html`<p class="faint">Incomplete: ${step.why === "max_output_tokens" ? "the limit of output tokens was reached." : step.why}</p>`}
      ${step.status === "cancelled" && html`<p class="faint">${step.why ?? "Stopped."}</p>`}
    </div>`)}
    ${running && !last?.items.length && html`<p class="waiting" aria-label="The model is reading"><i></i><i></i><i></i></p>`}
    ${!running && !calls.length && html`<${Lacks} conversation=${conversation} node=${node} />`}
    ${calls.length > 0 && html`<${Calls} conversation=${conversation} node=${node.id} calls=${calls} />`}
    ${compares && html`<${CompareForm} conversation=${conversation} node=${node} close=${() => setCompares(false)} />`}
    ${heat && !running && html`<${Confidence} response=${last.id} />`}
    ${!running && html`<div class="tools">
      <${Branches} conversation=${conversation} node=${node} versions=${versions} />
      <${IconButton} icon="copy" label="Copy the answer" onClick=${() => copy(textOf(node))} />
      <${IconButton} icon="link" label="Copy a link to this message" onClick=${() => copyMessageLink(node)} />
      <${IconButton} icon="again" label="Regenerate" onClick=${() => answer(conversation, node.parent)} />
      <${IconButton} icon="beside" label="Compare with another answer" aria-expanded=${compares} onClick=${() => setCompares(!compares)} />
      ${last?.id && html`<${IconButton} icon="heat" label="Show how sure the model was" aria-pressed=${heat} onClick=${() => setHeat(!heat)} />`}
      ${last?.id && html`<${IconButton} icon="tokens" label="Show the tokens" onClick=${() => inspect(last.id)} />`}
      <span class="faint" title="The speed is that of the tokens after the first, as this browser received them.">${costOf(node)}</span></div>`}
  <//>`;
}

// An answer for want of a tool: the switch, and the question again.
function Lacks({ conversation, node }) {
  const name = useShared(options, (o) => lacking(node, o));
  const again = () => {
    options.set({ [name]: true });
    answer(conversation, node.parent);
  };
  return name && html`<p><button type="button" class="suggest" onClick=${again}>Turn ${nameOf(name)} on and ask again</button></p>`;
}

// The answer is checked in the page too, with the schema that the response names.
function FollowsSchema({ step }) {
  const text = step.items.filter((item) => item?.type === "message" && item.phase !== "commentary").map(messageText).join("");
  const found = useMemo(() => text && checked(text, step.schema), [text, step.schema]);
  if (!found) return null;
  return found.valid
    ? html`<p class="good verdict">✓ Follows the schema.</p>`
    : html`<p class="bad verdict">✗ Does not follow the schema${found.where && html`, at <code>${found.where}</code>`}: ${found.why}</p>`;
}

// The tokens of a piece of reasoning: all of the response if there is no other piece, else those that have a score.
function countOf(step, item, at) {
  if (item.type !== "reasoning") return undefined;
  const alone = step.items.filter((each) => each?.type === "reasoning").length === 1;
  return (alone && step.usage?.output_tokens_details?.reasoning_tokens) || step.times[at]?.tokens;
}

function costOf(node) {
  const last = lastStep(node);
  if (!last?.usage) return "";
  const speed = speedHere(last);
  const { output_tokens: count, input_tokens_details: details } = last.usage;
  const cached = details?.cached_tokens ? ` · ${details.cached_tokens} cached` : "";
  return `${count} tokens${speed ? ` · ${speed.toFixed(0)} per second` : ""}${cached}`;
}

// What the user gave between two steps: results of functions, approvals.
const Given = ({ input }) => html`<ul class="given">${(input ?? []).map((item) =>
  item.type === "mcp_approval_response" ? html`<li>${item.approve ? "Approved" : "Denied"}</li>` : item.output !== undefined ? html`<li><span class="faint">You answered</span> <code>${item.output}</code></li>` : null)}</ul>`;
