// Calls that wait: the user writes the result of each function, and approves or denies MCP calls.
import { html, useState } from "../vendor/preact.js";
import { approvalFor, outputFor, proceed } from "../chat/runner.js";

const isApproval = (item) => item.type === "mcp_approval_request";

export function Calls({ conversation, node, calls }) {
  const [given, setGiven] = useState({});
  const answer = (all) => proceed(conversation, node, calls.map((item) => (isApproval(item) ? approvalFor(item, all[item.id]) : outputFor(item, all[item.id]))));
  const isReady = (all) => calls.every((item) => all[item.id] !== undefined);
  const decide = (item, approve) => {
    const all = { ...given, [item.id]: approve };
    setGiven(all);
    if (calls.every(isApproval) && isReady(all)) answer(all);
  };
  const submit = (event) => {
    event.preventDefault();
    if (isReady(given)) answer(given);
  };
  return html`<form class="card calls" onSubmit=${submit}>
    ${calls.map((item) =>
      isApproval(item)
        ? html`<${Approval} item=${item} given=${given[item.id]} decide=${(approve) => decide(item, approve)} />`
        : html`<label>Result of <code>${item.name}</code>
            <textarea rows="2" placeholder='{"temperature": 18}' value=${given[item.id] ?? ""} onInput=${(e) => setGiven({ ...given, [item.id]: e.target.value })}></textarea></label>`,
    )}
    ${!calls.every(isApproval) && html`<button class="primary" disabled=${!isReady(given)}>Continue</button>`}
  </form>`;
}

const Approval = ({ item, given, decide }) => html`<div class="approval" role="group" aria-label=${`May ${item.server_label} run ${item.name}?`}>
  <p>May <strong>${item.server_label}</strong> run <code>${item.name}</code>?</p>
  <button type="button" class=${given === false ? "" : "primary"} aria-pressed=${given === true} onClick=${() => decide(true)}>Approve</button>
  <button type="button" aria-pressed=${given === false} onClick=${() => decide(false)}>Deny</button></div>`;
