// What is open on the page: the panel at the right, the list at the left, the colours, what is being inspected.
import { createState } from "../lib/state.js";
import { read, write } from "../lib/saved.js";

const wide = () => innerWidth > 900;

export const view = createState({
  panel: wide() ? read("panel", "tokens") : null, // tokens, setup, workbench, health
  list: wide(),
  theme: read("theme", "auto"),
  trace: null, // a trace that was opened from a file
  subject: null, // the id of the response whose tokens are shown; null: the newest of the conversation
  message: null, // the message that a link names
  notice: "",
  act: null,
});

export function setTheme(theme) {
  write("theme", theme);
  view.set({ theme });
  applyTheme();
}

export function applyTheme() {
  const { theme } = view.get();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function showPanel(panel) {
  write("panel", panel);
  view.set({ panel, ...(wide() ? {} : { list: false }) });
}

// Opens the setup at one of its parts, and puts the cursor there.
export function showSetup(part) {
  showPanel("setup");
  setTimeout(() => {
    const place = document.querySelector(`.setup [data-part="${part}"]`);
    place?.scrollIntoView({ block: "start" });
    place?.querySelector("textarea, input, button")?.focus();
  });
}

export const toggle = (panel) => showPanel(view.get().panel === panel ? null : panel);

export const inspect = (response) => {
  view.set({ subject: response, trace: null });
  showPanel("tokens");
};

// `act` is what the notice offers to do: { name, run }.
export function notice(text, act = null) {
  view.set({ notice: text, act });
}
