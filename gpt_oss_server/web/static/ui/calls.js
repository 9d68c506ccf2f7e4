// Calls that wait: the user writes the result of each function, and approves or denies MCP calls.
import { html, useState } from "../vendor/preact.js";
import { approvalFor, outputFor, proceed } from "../chat/runner.js";

export function Calls({ conversation, node, calls }) {
  const [given, setGiven] = useState({});
  const isApproval = (item) => item.type === "mcp_approval_request";
  const ready = calls.every((item) => given[item.id] !== undefined);
  const submit = (event) => {
    event.preventDefault();
    if (ready) proceed(conversation, node, calls.map((item) => (isApproval(item) ? approvalFor(item, given[item.id]) : outputFor(item, given[item.id]))));
  };
  const set = (item, value) => setGiven({ ...given, [item.id]: value });
  return html`<form class="card calls" onSubmit=${submit}>
    ${calls.map((item) =>
      isApproval(item)
        ? html`<fieldset><legend>May ${item.server_label} run ${item.name}?</legend>
            <label><input type="radio" name=${item.id} onChange=${() => set(item, true)} />Approve</label>
            <label><input type="radio" name=${item.id} onChange=${() => set(item, false)} />Deny</label></fieldset>`
        : html`<label>Result of <code>${item.name}</code>
            <textarea rows="2" placeholder='{"temperature": 18}' value=${given[item.id] ?? ""} onInput=${(e) => set(item, e.target.value)}></textarea></label>`,
    )}
    <button class="primary" disabled=${!ready}>Continue</button>
  </form>`;
}
