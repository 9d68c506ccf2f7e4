// Asks for the server's key where it requires one.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { access, key } from "../lib/api.js";
import { useShared } from "../lib/state.js";
import { meet } from "./server.js";
import { unknown } from "../chat/store.js";
import { openAddress } from "./stored.js";
import { openLinked } from "./traces.js";

export function KeyForm() {
  const { asks, why } = useShared(access);
  const [text, setText] = useState("");
  const input = useRef();
  useEffect(() => {
    if (asks) input.current.focus(); // not a key into a message
  }, [asks]);
  if (!asks) return null;
  const submit = (event) => {
    event.preventDefault();
    key.set(text.trim());
    setText("");
    meet();
    openLinked(); // it was refused without the key
    if (unknown()) openAddress(unknown());
  };
  return html`<form class="card key-form" onSubmit=${submit}>
    <label>The server requires a key<input type="password" autocomplete="off" ref=${input} value=${text} onInput=${(e) => setText(e.target.value)} /></label>
    <button class="primary" disabled=${!text.trim()}>Use this key</button>
    <p class="faint" role="status">${why} The key is kept until this tab closes.</p>
  </form>`;
}

export function Forget() {
  const { held } = useShared(access);
  return held ? html`<button type="button" onClick=${() => (key.set(""), meet())}>Forget the key</button>` : null;
}
