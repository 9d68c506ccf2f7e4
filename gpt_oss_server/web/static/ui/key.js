// Asks for the server's key where it requires one.
import { html, useState } from "../vendor/preact.js";
import { key } from "../lib/api.js";
import { useShared } from "../lib/state.js";
import { meet, server } from "./server.js";

export function KeyForm() {
  const { needsKey, problem } = useShared(server);
  const [text, setText] = useState("");
  if (!needsKey) return null;
  const submit = (event) => {
    event.preventDefault();
    key.set(text);
    meet();
  };
  return html`<form class="card key-form" onSubmit=${submit}>
    <label>The server requires a key<input type="password" autocomplete="off" value=${text} onInput=${(e) => setText(e.target.value)} /></label>
    <button class="primary">Use this key</button>
    <p class="faint">${problem} The key is kept until this tab closes.</p>
  </form>`;
}
