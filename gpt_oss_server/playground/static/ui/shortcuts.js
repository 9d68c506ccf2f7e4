// The keys of the page: what they do, and the list of them.
import { html, useEffect } from "../vendor/preact.js";
import { createState, useShared } from "../lib/state.js";
import { stopShown } from "../chat/runner.js";
import { begin } from "../chat/store.js";
import { Dialog } from "./dialog.js";
import { toggle } from "./view.js";

const KEYS = [
  { keys: "Enter", does: "Send" },
  { keys: "Shift+Enter", does: "A new line" },
  { keys: "Esc", does: "Stop the answer" },
  { keys: "← →", does: "In the tokens: from one to the next" },
  { keys: "Ctrl+/", does: "This list, in which one key does the rest" },
  { keys: "N", does: "A new conversation", act: begin },
  { keys: "T", does: "Tokens", act: () => toggle("tokens") },
  { keys: "S", does: "Setup", act: () => toggle("setup") },
  { keys: "W", does: "Workbench", act: () => toggle("workbench") },
  { keys: "H", does: "Health", act: () => toggle("health") },
];

const shows = createState({ open: false });

export const showShortcuts = () => shows.set({ open: true });

// Only Ctrl+/ is asked of the browser, which uses it for nothing; the other keys work while the list is open.
export function onKey(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) stopShown();
  if (!event.ctrlKey || event.key !== "/") return;
  event.preventDefault();
  shows.set(({ open }) => ({ open: !open }));
}

export function Shortcuts() {
  const { open } = useShared(shows);
  useEffect(() => {
    if (!open) return undefined;
    const onLetter = (event) => {
      const found = KEYS.find(({ keys, act }) => act && keys === event.key.toUpperCase());
      if (!found || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      shows.set({ open: false });
      found.act();
    };
    addEventListener("keydown", onLetter);
    return () => removeEventListener("keydown", onLetter);
  }, [open]);
  return open && html`<${Dialog} title="Keyboard" close=${() => shows.set({ open: false })}>
    <dl class="counts">${KEYS.map(({ keys, does }) => html`<dt>${does}</dt><dd>${keys.split("+").map((each) => html`<kbd>${each}</kbd>`)}</dd>`)}</dl>
  <//>`;
}
