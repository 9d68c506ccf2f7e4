// All that is known of one token: id, text, bytes, probability, and what the model could have written instead.
import { html, useEffect, useState } from "../vendor/preact.js";
import { json } from "../lib/api.js";
import { percent } from "../lib/token.js";
import { notice, showPanel } from "../ui/view.js";
import { layOut, runInstead } from "../workbench/bench.js";
import { onFrom, textOf, upTo } from "./rows.js";

const PAUSE = 200; // milliseconds at a token before the server is asked about it

// What the grammar allowed in place of a token that the model wrote. Only the server that generated it knows.
function useAllowed(token, asks) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    setFound(null);
    if (!asks || token?.logprob === undefined) return undefined;
    const { response, place } = token;
    const control = new AbortController();
    const ask = () => json(`v1/responses/${response.response.id}/trace?allowed=${place - response.prompt.length}`, { signal: control.signal }).then(({ allowed }) => setFound(allowed), (error) => error.name !== "AbortError" && setFound({ problem: error.message }));
    const timer = setTimeout(ask, PAUSE);
    return () => (clearTimeout(timer), control.abort());
  }, [token, asks]);
  return found;
}

const Allowed = ({ trace, found: { count, tokens, problem } }) => html`<p class="allowed"><span class="faint">${problem ?? `The grammar allowed ${count === 1 ? "this token only" : `${count.toLocaleString()} tokens`}${count > 1 && count <= tokens.length ? ":" : "."}`}</span>
  ${count > 1 && count <= tokens.length && tokens.map(([id, text]) => html` <code>${JSON.stringify(typeof text === "string" ? text : textOf(trace, id))}</code>`)}</p>`;

// `asks`: the trace is of this server, which can be asked for more.
export function Inspector({ trace, token, asks = true }) {
  const allowed = useAllowed(token, asks);
  if (!token) {
    return html`<footer class="inspector faint" aria-live="polite">Point at a token to see its id, its probability and the alternatives.</footer>`;
  }
  const onward = () => {
    layOut(upTo(trace, token));
    showPanel("workbench");
  };
  const instead = (id) => {
    showPanel("workbench");
    runInstead(upTo(trace, token).slice(0, -1), onFrom(trace, token), { id, text: textOf(trace, id) }).catch((error) => notice(error.message));
  };
  return html`<footer class="inspector" aria-live="polite">
    <button type="button" class="quiet onward" title="In the workbench, with other settings" onClick=${onward}>Continue from here</button>
    <p><code class="big">${JSON.stringify(textOf(trace, token.id))}</code> <span class="faint">id</span> ${token.id}
      ${token.logprob !== null && token.logprob !== undefined && html` <span class="faint">probability</span> ${percent(token.logprob)}`}
      ${token.cached && html` <span class="tag">from the cache</span>`}
      ${token.dropped && html` <span class="tag">left out of the next turn</span>`}
      ${token.slip && html` <span class="tag bad">slip</span>`}</p>
    ${token.alternatives && html`<ul class="bars">${token.alternatives.map(([id, logprob]) => html`<li class=${`${id === token.id ? "chosen" : ""} ${allowed?.forbidden?.includes(id) ? "forbidden" : ""}`} title=${allowed?.forbidden?.includes(id) ? "The grammar forbade it" : undefined}><button type="button" class="alternative" title="Continue as if it had said this" disabled=${id === token.id} onClick=${() => instead(id)}><code>${JSON.stringify(textOf(trace, id))}</code></button><meter min="0" max="1" value=${Math.exp(logprob)} aria-label="Probability"></meter><span>${percent(logprob)}</span></li>`)}</ul>`}
    ${allowed && html`<${Allowed} trace=${trace} found=${allowed} />`}
  </footer>`;
}
