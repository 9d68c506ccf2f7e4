// A window over the page: its title, a way to close it, and what it is for.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { IconButton } from "./icons.js";

export function Dialog({ title, close, children }) {
  const place = useRef();
  useEffect(() => place.current.showModal(), []);
  return html`<dialog class="dialog" ref=${place} onClose=${close} aria-label=${title}>
    <header class="row-of"><h2>${title}</h2><${IconButton} icon="close" label="Close" onClick=${close} /></header>
    ${children}
  </dialog>`;
}
