// Health at a glance: small plots that move with the server's work.
import { html, useEffect, useState } from "../vendor/preact.js";
import { useAnswers } from "./answers.js";
import { EVERY, joined, levels, rates, sample } from "./measures.js";
import { Plot } from "./plot.js";
import { Steps } from "./steps.js";

const PLOTS = [
  { name: "steps", title: "Model steps per second", rate: true },
  { name: "prompt_tokens", title: "Prompt tokens per second", rate: true },
  { name: "running", title: "Running" },
  { name: "waiting", title: "Waiting" },
  { name: "kv_blocks_used", title: "Memory blocks in use" },
  { name: "cached_tokens", title: "Cached tokens per second", rate: true },
  { name: "restored_from_memory", title: "Tokens restored from memory per second", rate: true },
  { name: "restored_from_disk", title: "Tokens restored from disk per second", rate: true },
];

export function Health() {
  const [samples, setSamples] = useState([]);
  const [problem, setProblem] = useState("");
  const answers = useAnswers();
  useEffect(() => {
    const control = new AbortController();
    let timer;
    const read = async () => {
      try {
        const next = await sample(control.signal);
        setSamples((before) => joined(before, next));
        setProblem("");
      } catch (error) {
        if (error.name !== "AbortError") setProblem(error.message);
      }
      if (!control.signal.aborted) timer = setTimeout(read, EVERY);
    };
    read();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, []);
  const last = samples.at(-1);
  if (!last) return html`<p class="hint faint">${problem || "Reading…"}</p>`;
  const known = PLOTS.filter((plot) => `engine.${plot.name}` in last.values);
  return html`<div class="scroll health" tabindex="0" role="region" aria-label="Plots and counts">
    ${problem && html`<p class="bad wide">${problem}</p>`}
    <${Steps} steps=${last.steps} />
    ${known.map(({ name, title, rate }) => html`<${Plot} key=${name} title=${title} values=${rate ? rates(samples, `engine.${name}`) : levels(samples, `engine.${name}`)} />`)}
    ${answers.first.length > 0 && html`<${Plot} title="Your time to first token, ms" values=${answers.first} />`}
    ${answers.rate.length > 0 && html`<${Plot} title="Your tokens per second" values=${answers.rate} />`}
    <${Plot} title="Reply of /health, ms" values=${samples.map((each) => each.took)} />
    <${Counts} title="Responses" values=${last.values} begins="responses." />
    <${Counts} title="Slips" values=${last.values} begins="harmony_slips." none="The model has made none." />
    <${Counts} title="Tools" values=${last.values} begins="tools." none="No tool has run." />
    <${Counts} title="Engine" values=${last.values} begins="engine." none="This engine reports nothing." />
  </div>`;
}

function Counts({ title, values, begins, none = "None yet." }) {
  const rows = Object.entries(values).filter(([name]) => name.startsWith(begins));
  return html`<section class="plot-card wide"><h3>${title}</h3>
    ${rows.length ? html`<dl class="counts">${rows.map(([name, value]) => html`<dt>${name.slice(begins.length).replaceAll("_", " ")}</dt><dd>${value.toLocaleString(undefined, { maximumFractionDigits: 2 })}</dd>`)}</dl>` : html`<p class="faint">${none}</p>`}</section>`;
}
