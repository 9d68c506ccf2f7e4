// The embedded model is a demonstration. Where a request is beyond it, a quiet line says so, and how to serve a real one.
import { html, useState } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { options } from "../chat/options.js";
import { Code } from "../lib/markdown.js";
import { Dialog } from "./dialog.js";

const LONG = { text: 600, tokens: 1000 }; // characters of a message, tokens of a conversation: more than it has learnt
const SERVE = `# here: 14 GB of memory, best on a GPU
gpt-oss-server serve openai/gpt-oss-20b
# a llama-server that runs
gpt-oss-server serve llama:http://127.0.0.1:8080
# a vLLM that runs
gpt-oss-server serve vllm:http://127.0.0.1:8001`;

function beyond(o, text, files, used) {
  if (o.browser) return "reads long pages badly";
  if (o.calls && o.functions.filter((each) => each.name).length > 1) return "chooses badly among several functions";
  if (files.length || text.length > LONG.text) return "reads long texts badly";
  return used > LONG.tokens ? "has learnt short conversations only" : null;
}

export function Beyond({ model, text, files, used }) {
  const [shows, setShows] = useState(false);
  const why = useShared(options, (o) => (model?.is_demo ? beyond(o, text, files, used) : null));
  if (!why && !shows) return null;
  return html`<p class="faint beyond" role="note">${why && html`This demonstration model ${why}.`} <button type="button" class="quiet" onClick=${() => setShows(true)}>Serve a real model</button></p>
    ${shows && html`<${Dialog} title="Serve a real model" close=${() => setShows(false)}>
      <p>The embedded model has 16 million parameters and shows what the server does. The same page, tools and APIs serve gpt-oss-20b and gpt-oss-120b, here or on an engine that you run already:</p>
      <${Code} code=${SERVE} language="sh" label="one of these" />
      <p class="faint"><code>gpt-oss-server doctor</code> states what this machine can serve; <code>gpt-oss-server pull openai/gpt-oss-20b</code> downloads it.</p>
    <//>`}`;
}
