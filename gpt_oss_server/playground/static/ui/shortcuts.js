// The keys of the page: what they do, and the list of them.
import { html } from "../vendor/preact.js";
import { createState, useShared } from "../lib/state.js";
import { begin } from "../chat/store.js";
import { Dialog } from "./dialog.js";
import { toggle } from "./view.js";

const KEYS = [
  { keys: "Enter", does: "Send" },
  { keys: "Shift+Enter", does: "A new line" },
  { keys: "Esc", does: "Stop the answer" },
  { keys: "Ctrl+Shift+O", does: "A new conversation", act: begin },
  { keys: "Ctrl+Shift+T", does: "Tokens", act: () => toggle("tokens") },
  { keys: "Ctrl+Shift+S", does: "Setup", act: () => toggle("setup") },
  { keys: "Ctrl+Shift+B", does: "Workbench", act: () => toggle("workbench") },
  { keys: "Ctrl+Shift+H", does: "Health", act: () => toggle("health") },
  { keys: "← →", does: "In the tokens: from one to the next" },
  { keys: "Ctrl+/", does: "This list", act: () => shows.set(({ open }) => ({ open: !open })) },
];

const shows = createState({ open: false });

export const showShortcuts = () => shows.set({ open: true });

export function onKey(event) {
  if (!event.ctrlKey && !event.metaKey) return;
  const pressed = event.key === "/" ? "Ctrl+/" : event.shiftKey ? `Ctrl+Shift+${event.key.toUpperCase()}` : "";
  const found = KEYS.find((each) => each.keys === pressed);
  if (!found) return;
  event.preventDefault();
  found.act();
}

export function Shortcuts() {
  const { open } = useShared(shows);
  return open && html`<${Dialog} title="Keyboard" close=${() => shows.set({ open: false })}>
    <dl class="counts">${KEYS.map(({ keys, does }) => html`<dt>${does}</dt><dd>${keys.split("+").map((each) => html`<kbd>${each}</kbd>`)}</dd>`)}</dl>
  <//>`;
}
