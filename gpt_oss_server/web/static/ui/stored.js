// Opens what the server stores: by its id, or from the list of the stored chat completions.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { json } from "../lib/api.js";
import { createState, useShared } from "../lib/state.js";
import { resume } from "../chat/runner.js";
import { holding, open, take } from "../chat/store.js";
import { readStored } from "../chat/stored.js";
import { IconButton } from "./icons.js";

const shows = createState({ open: false });

export const showStored = () => shows.set({ open: true });

export function Stored() {
  const { open: isOpen } = useShared(shows);
  return isOpen ? html`<${Dialog} />` : null;
}

function Dialog() {
  const place = useRef();
  const [id, setId] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const close = () => shows.set({ open: false });
  useEffect(() => {
    place.current.showModal();
    place.current.querySelector("input").focus();
  }, []);
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
  return html`<dialog class="dialog" ref=${place} onClose=${close} aria-label="Open from the server">
    <header class="row-of"><h2>Open from the server</h2><${IconButton} icon="close" label="Close" onClick=${close} /></header>
    <form onSubmit=${submit}>
      <label>Id of a response, a conversation or a chat completion
        <input class="mono" placeholder="resp_…, conv_… or chatcmpl-…" value=${id} onInput=${(e) => setId(e.target.value)} /></label>
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
      <button class="primary" disabled=${busy || !id.trim()}>${busy ? "Reading…" : "Open"}</button>
    </form>
    <${Completions} choose=${read} />
  </dialog>`;
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

async function openStored(id) {
  const here = holding(id);
  if (here) {
    open(here);
    return;
  }
  take(await readStored(id));
  resume(); // it may still be running
}
