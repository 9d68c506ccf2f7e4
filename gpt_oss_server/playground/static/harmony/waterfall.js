// The way of a request as a timeline: for each completion the queue, its prompt, then its tokens; between them tools.
import { html } from "../vendor/preact.js";

const ms = (seconds) => (seconds < 10 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

function spansOf({ generations, tools, prompt }) {
  let size = prompt.length;
  const spans = generations.flatMap(({ began, first_token: first, ended, given, tokens, cached, queued }, number) => {
    size += given.length;
    const before = `${size.toLocaleString()} tokens of prompt${cached ? `, ${cached.toLocaleString()} from the cache` : ""}`;
    size += tokens.length;
    const starts = began + (queued ?? 0);
    const waits = queued ? [{ kind: "waits", name: `Queue ${number + 1}`, from: began, to: starts, note: "" }] : [];
    const reads = { kind: "reads", name: `Prompt ${number + 1}`, from: starts, to: first ?? ended, note: before };
    const writes = { kind: "writes", name: `Completion ${number + 1}`, from: first, to: ended, note: `${tokens.length.toLocaleString()} tokens` };
    return first === null ? [...waits, reads] : [...waits, reads, writes];
  });
  const ran = tools.map(({ recipient, began, ended }) => ({ kind: "tool", name: recipient, from: began, to: ended, note: "" }));
  return [...spans, ...ran].filter(({ from }) => from !== null).sort((a, b) => a.from - b.from);
}

export function Waterfall({ trace }) {
  const response = trace.responses.at(-1);
  const spans = spansOf(response);
  const end = Math.max(...spans.map(({ from, to }) => to ?? from), 0.001);
  const share = (seconds) => `${(100 * seconds) / end}%`;
  return html`<ol class="waterfall" aria-label="The way of the request">${spans.map(({ kind, name, from, to, note }) => {
    const took = (to ?? end) - from;
    return html`<li><span class="name" title=${name}>${name}</span><span class="lane"><i class=${kind} style=${{ left: share(from), width: share(took) }}></i></span>
      <span class="faint">${ms(took)}${note && ` · ${note}`}</span></li>`;
  })}<li><span class="name">Together</span><span class="faint">${ms(end)}, since the request was read</span></li></ol>`;
}
