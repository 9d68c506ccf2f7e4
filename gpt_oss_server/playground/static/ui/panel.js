// The panel at the right, with one of its four contents.
import { html } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { Health } from "../health/health.js";
import { Tokens } from "../harmony/tokens.js";
import { Workbench } from "../workbench/workbench.js";
import { IconButton } from "./icons.js";
import { Setup } from "./setup.js";
import { showPanel, view } from "./view.js";

export const TABS = [
  { id: "tokens", name: "Tokens", icon: "tokens", about: "What the model saw and wrote (Ctrl+/ T)", view: Tokens },
  { id: "setup", name: "Setup", icon: "sliders", about: "Instructions, sampling and tools (Ctrl+/ S)", view: Setup },
  { id: "workbench", name: "Workbench", icon: "flask", about: "Prompts by hand, runs compared (Ctrl+/ W)", view: Workbench },
  { id: "health", name: "Health", icon: "pulse", about: "The server's work (Ctrl+/ H)", view: Health },
];

export function Panel() {
  const { panel } = useShared(view);
  const tab = TABS.find((each) => each.id === panel);
  if (!tab) return null;
  return html`<aside class="panel" aria-label=${tab.name}>
    <header class="bar"><h2>${tab.name}</h2><${IconButton} icon="close" label="Close the panel" onClick=${() => showPanel(null)} /></header>
    <${tab.view} />
  </aside>`;
}
