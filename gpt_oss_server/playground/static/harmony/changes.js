// What a turn's prompt shares with all that the model saw in the turn before, and where the two part.
import { html, useEffect, useState } from "../vendor/preact.js";
import { traceOf } from "../lib/api.js";
import { Dialog } from "../ui/dialog.js";
import { compared } from "../workbench/diff.js";
import { Strip } from "../workbench/strip.js";
import { textOf } from "./rows.js";

const BEFORE = 12; // tokens that both share, shown before they part

const all = ({ prompt, generations }) => generations.reduce((found, each) => found.concat(each.given, each.tokens), prompt);

export function Changes({ id, before, close }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    Promise.all([before, id].map((each) => traceOf(each))).then(([a, b]) => setFound(between(a, b)), (error) => setFound({ problem: error.message }));
  }, [id, before]);
  return html`<${Dialog} title="What changed since the turn before" close=${close}>
    ${!found && html`<p class="faint">Reading both traces…</p>`}
    ${found?.problem && html`<p class="bad" role="alert">${found.problem}</p>`}
    ${found?.shared !== undefined && html`<p>The prompt has ${found.length.toLocaleString()} tokens. It shares the first ${found.shared.toLocaleString()} with the turn before, and ${found.cached.toLocaleString()} came from the cache.</p>
      <p class="faint">The turn before, from there on: what is framed is not in the new prompt.</p><${Strip} tokens=${found.a} own=${found.ownA} label="The turn before" />
      <p class="faint">The new prompt, from there on: what is framed is new.</p><${Strip} tokens=${found.b} own=${found.ownB} label="The new prompt" />`}
  <//>`;
}

function between(traceA, traceB) {
  const [last, next] = [traceA.responses.at(-1), traceB.responses.at(-1)];
  const [a, b] = [all(last), next.prompt];
  let shared = 0;
  while (shared < a.length && shared < b.length && a[shared] === b[shared]) shared++;
  const from = Math.max(shared - BEFORE, 0);
  const { ownA, ownB } = compared(a.slice(from), b.slice(from));
  const spelled = (trace, ids) => ids.slice(from).map((id) => ({ id, text: textOf(trace, id) }));
  return { shared, length: b.length, cached: next.generations[0]?.cached ?? 0, a: spelled(traceA, a), b: spelled(traceB, b), ownA, ownB };
}
