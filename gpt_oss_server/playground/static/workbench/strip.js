// Tokens in a flow: special tokens as chips, probabilities as tips, tokens that only one run has in a frame.
import { html } from "../vendor/preact.js";
import { isSpecial, percent } from "../lib/token.js";

const MOST = 6000;

export function Strip({ tokens, cut = null, own, onChoose, label }) {
  const choose = (event) => {
    const at = event.target.dataset?.at;
    if (at !== undefined) onChoose?.(Number(at));
  };
  return html`<div class="strip" tabindex="0" aria-label=${label} onClick=${choose}>
    ${tokens.slice(0, MOST).map((token, at) => html`<span data-at=${at} title=${about(token)} class=${classOf(token, at, cut, own, onChoose)}>${token.text}</span>`)}
    ${tokens.length > MOST && html`<p class="faint">and ${tokens.length - MOST} more</p>`}
  </div>`;
}

function classOf(token, at, cut, own, chooses) {
  const names = ["t", isSpecial(token.id) ? "special" : "text"];
  if (chooses) names.push("cut");
  if (cut !== null && at > cut) names.push("gone");
  if (at === cut) names.push("last");
  if (own?.has(at)) names.push("other");
  return names.join(" ");
}

function about(token) {
  const lines = [`id ${token.id}`];
  if (token.logprob !== null && token.logprob !== undefined) lines.push(`probability ${percent(token.logprob)}`);
  for (const [text, logprob] of Object.entries(token.top ?? {})) lines.push(`${JSON.stringify(text)} ${percent(logprob)}`);
  return lines.join("\n");
}
