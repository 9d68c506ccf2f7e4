// An answer of the chat, coloured by how sure the model was of each token. The tokens come from the trace.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { heatOf, MODES } from "./heat.js";
import { Inspector } from "./inspector.js";
import { useTrace } from "./live.js";
import { written } from "./rows.js";

// The texts of a response, in the order of its items: messages to the user, and reasoning.
export function Confidence({ response }) {
  const { trace, problem } = useTrace(response, false);
  const [mode, setMode] = useState("probability");
  const [token, setToken] = useState(null);
  const texts = useMemo(() => (trace ? written(trace).filter((each) => !each.recipient && each.tokens.length) : []), [trace]);
  const place = useRef();
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [texts.length > 0, token !== null]);
  const onOver = ({ target }) => {
    const [text, at] = (target.dataset?.t ?? "").split(":");
    if (at !== undefined) setToken(texts[text].tokens[at]);
  };
  if (!trace) return html`<p class="faint">${problem || "Reading the tokens…"}</p>`;
  const scored = texts.some((each) => each.tokens.some((one) => heatOf(one, mode) !== null));
  return html`<div class="confidence card" ref=${place}>
    <div class="row-of">${Object.entries(MODES).filter(([name]) => name !== "channel").map(([name, title]) => html`<button type="button" class=${`chip ${mode === name ? "on" : ""}`} aria-pressed=${mode === name} onClick=${() => setMode(name)}>${title}</button>`)}
      <ol class="scale" aria-hidden="true"><li>sure</li>${[0, 1, 2, 3, 4, 5].map((level) => html`<li class=${`h${level}`}></li>`)}<li>unsure</li></ol></div>
    ${!scored && html`<p class="faint">This answer came without probabilities: Setup requests them.</p>`}
    <div onMouseOver=${onOver} onClick=${onOver}>${texts.map((each, text) => html`<p class=${`heat ${each.channel}`} key=${text}>${each.tokens.map((one, at) => html`<span data-t=${`${text}:${at}`} class=${`h${heatOf(one, mode) ?? 0} ${one === token ? "selected" : ""}`}>${one.text}</span>`)}</p>`)}</div>
    <${Inspector} trace=${trace} token=${token} />
  </div>`;
}
