// The batch of each of the engine's newest steps: tokens of prompts that it read, tokens that it decoded, and who waited.
import { html } from "../vendor/preact.js";

const SHOWN = 120;
const LANES = [
  { name: "prompt_tokens", title: "Prompt tokens", kind: "reads" },
  { name: "decoded_tokens", title: "Decoded tokens", kind: "writes" },
  { name: "waiting", title: "Waiting", kind: "waits" },
];

const inWords = ({ step, prompts, prompt_tokens: read, decoding, decoded_tokens: decoded, waiting }) =>
  `Step ${step.toLocaleString()}: ${[prompts && `${read} tokens of ${prompts} ${prompts === 1 ? "prompt" : "prompts"}`, decoding && `${decoded} ${decoded === 1 ? "token" : "tokens"} decoded for ${decoding} ${decoding === 1 ? "request" : "requests"}`, `${waiting} waiting`].filter(Boolean).join(", ")}`;

export function Steps({ steps }) {
  const shown = steps.slice(-SHOWN);
  if (!shown.length) return null;
  return html`<section class="plot-card wide steps"><h3>The batch of each step</h3><p class="faint">${inWords(shown.at(-1))}</p>
    ${LANES.map(({ name, title, kind }) => {
      const most = Math.max(...shown.map((each) => each[name]));
      return html`<div class="lane-of"><span class="faint">${title}</span><svg viewBox="0 0 ${SHOWN} 20" preserveAspectRatio="none" role="img" aria-label=${`${title} of the last ${shown.length} steps: at most ${most}`}>
        ${shown.map((each, at) => html`<g><title>${inWords(each)}</title><rect class="room" x=${at} y="0" width="1" height="20" /><rect class=${kind} x=${at} y=${20 - (20 * each[name]) / Math.max(most, 1)} width="0.8" height=${(20 * each[name]) / Math.max(most, 1)} /></g>`)}</svg><span class="faint">${most.toLocaleString()}</span></div>`;
    })}</section>`;
}
