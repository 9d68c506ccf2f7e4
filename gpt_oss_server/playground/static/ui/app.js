// The page: conversations at the left, the chat in the middle, tokens and settings at the right.
import { html, useEffect } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { connection, probe } from "../lib/connection.js";
import { resume } from "../chat/runner.js";
import { collection } from "../chat/collection.js";
import { conversations, current, unknown } from "../chat/store.js";
import { startSync } from "../chat/synced.js";
import { Browsing, Collection } from "./collection.js";
import { Composer } from "./composer.js";
import { openDropped } from "./dropped.js";
import { Icon as IconOf, IconButton } from "./icons.js";
import { KeyForm } from "./key.js";
import { showLinked } from "./links.js";
import { Panel, TABS } from "./panel.js";
import { meet, server, useModel } from "./server.js";
import { onKey, Shortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { openAddress, Stored } from "./stored.js";
import { Thread } from "./thread.js";
import { openLinked } from "./traces.js";
import { applyTheme, notice, toggle, view } from "./view.js";

export function App() {
  const { panel, list, notice: told, act } = useShared(view);
  const { shown: grid } = useShared(collection);
  useEffect(() => {
    applyTheme();
    meet();
    resume();
    startSync();
    openLinked();
    if (unknown()) openAddress(unknown());
    else showLinked();
    addEventListener("hashchange", () => (openLinked(), showLinked()));
    addEventListener("keydown", onKey);
    const drop = (event) => (event.preventDefault(), openDropped(event.dataTransfer.files));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", drop);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return html`<div class=${`app ${list ? "with-list" : ""} ${panel ? "with-panel" : ""}`}>
    <${Sidebar} />
    <main class="chat">
      <${Header} />
      <${Lost} />
      <${KeyForm} />
      ${grid ? html`<${Collection} />` : html`<${Browsing} /><${Thread} /><${Composer} />`}
    </main>
    <${Panel} />
    <${Stored} />
    <${Shortcuts} />
    ${told && html`<div class="notice" role="alert">${told}${act && html`<button type="button" class="quiet" onClick=${() => (notice(""), act.run())}>${act.name}</button>`}<${IconButton} icon="close" label="Close the notice" onClick=${() => notice("")} /></div>`}
  </div>`;
}

function Lost() {
  const { lost } = useShared(connection);
  return lost && html`<p class="lost" role="status">The server cannot be reached; the page tries again by itself. <button type="button" class="quiet" onClick=${probe}>Try now</button></p>`;
}

function Header() {
  const { panel } = useShared(view);
  const { problem } = useShared(server);
  const model = useModel();
  const { shown: grid } = useShared(collection);
  const title = useShared(conversations, (state) => current(state).title);
  useEffect(() => {
    document.title = title ? `${title} · gpt-oss-server` : "gpt-oss-server";
  }, [title]);
  return html`<header class="bar">
    <${IconButton} icon="menu" label="Conversations" onClick=${() => view.set((v) => ({ ...v, list: !v.list }))} />
    <div class="names">
      <h1>${grid ? "Opened files" : title || "New conversation"}</h1>
      <p class="faint">${problem || (model ? model.id : "…")}</p>
    </div>
    <nav class="tabs" aria-label="Panels">
      ${TABS.map(
        (tab) => html`<button type="button" class="tab" aria-label=${tab.name} aria-pressed=${panel === tab.id} onClick=${() => toggle(tab.id)} title=${tab.about}>
          <${IconOf} name=${tab.icon} /><span>${tab.name}</span></button>`,
      )}
    </nav>
  </header>`;
}
