// Opens what the server stores: by its id, or from the list of the stored chat completions.
import { html, useEffect, useState } from "../vendor/preact.js";
import { json } from "../lib/api.js";
import { createState, useShared } from "../lib/state.js";
import { resume } from "../chat/runner.js";
import { begin, holding, open, take } from "../chat/store.js";
import { readStored } from "../chat/stored.js";
import { Dialog } from "./dialog.js";
import { asked, showLinked } from "./links.js";
import { notice } from "./view.js";

const shows = createState({ open: false });

export const showStored = () => shows.set({ open: true });

export function Stored() {
  const { open: isOpen } = useShared(shows);
  return isOpen && html`<${Opening} />`;
}

function Opening() {
  const [id, setId] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const close = () => shows.set({ open: false });
  const read = async (wanted) => {
    setBusy(true);
    try {
      await openStored(wanted);
      close();
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    read(id.trim());
  };
  return html`<${Dialog} title="Open from the server" close=${close}>
    <form onSubmit=${submit}>
      <label>Id of a response, a conversation or a chat completion
        <input class="mono" autofocus placeholder="resp_…, conv_… or chatcmpl-…" value=${id} onInput=${(e) => setId(e.target.value)} /></label>
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
      <button class="primary" disabled=${busy || !id.trim()}>${busy ? "Reading…" : "Open"}</button>
    </form>
    <${Completions} choose=${read} />
  <//>`;
}

// The API lists stored chat completions only; responses and conversations are found by their ids.
function Completions({ choose }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    json("v1/chat/completions?order=desc&limit=20").then(({ data }) => setFound(data), () => setFound([]));
  }, []);
  if (!found?.length) return html`<p class="faint">${found ? "No chat completion is stored (store: true stores them)." : "Reading…"}</p>`;
  return html`<h3>Stored chat completions</h3><ul class="stored">${found.map((each) => html`<li><button type="button" onClick=${() => choose(each.id)}>
    <span>${each.choices[0].message.content?.slice(0, 80) || "a call"}</span><span class="faint">${new Date(each.created * 1000).toLocaleString()}</span></button></li>`)}</ul>`;
}

// An address of this page may name what the server stores, so that it opens in any browser with the same key.
export async function openAddress(id) {
  const mark = asked();
  try {
    await openStored(id);
    notice("");
    showLinked(mark, id);
  } catch (error) {
    const here = /^(resp|conv|chatcmpl)[_-]/.test(id);
    notice(here ? `The conversation of this address cannot be opened: ${error.message}` : "This browser has no conversation of this address. It may be in another browser, or deleted.");
    if (!here) begin();
  }
}

async function openStored(id) {
  const here = holding(id);
  if (here) {
    open(here);
    return;
  }
  take(await readStored(id));
  resume(); // it may still be running
}
