// The conversations of this browser: search, open, delete, export and import.
import { html, useMemo, useState } from "../vendor/preact.js";
import { choose, save } from "../lib/files.js";
import { useShared } from "../lib/state.js";
import { address, linkTo } from "../lib/place.js";
import { access } from "../lib/api.js";
import { begin, conversations, discard, listed, open, rename } from "../chat/store.js";
import { mayKeep, setKept, sync } from "../chat/synced.js";
import { textOf } from "../chat/tree.js";
import { exported, openDropped } from "./dropped.js";
import { Icon, IconButton } from "./icons.js";
import { server } from "./server.js";
import { showShortcuts } from "./shortcuts.js";
import { showStored } from "./stored.js";
import { notice, setTheme, view } from "./view.js";

export function Sidebar() {
  const state = useShared(conversations);
  const { theme } = useShared(view);
  const { version } = useShared(server);
  const [query, setQuery] = useState("");
  const found = useMemo(() => listed(state).filter((each) => fits(each, query)), [state.all, query]);
  const next = { auto: "dark", dark: "light", light: "auto" }[theme];
  return html`<aside class="sidebar" aria-label="Conversations">
    <div class="brand"><img src=${address("web/icon.svg")} alt="" width="26" height="26" /><strong>gpt-oss-server</strong></div>
    <button type="button" class="new" onClick=${() => (begin(), close())}><${Icon} name="plus" />New conversation</button>
    <label class="search"><${Icon} name="search" /><input type="search" placeholder="Search" aria-label="Search conversations" value=${query} onInput=${(e) => setQuery(e.target.value)} /></label>
    <ul class="list">
      ${found.map((each) => html`<${Entry} key=${each.id} conversation=${each} isOpen=${each.id === state.open} />`)}
    </ul>
    ${!found.length && html`<p class="faint empty">${query ? "Nothing found." : "Conversations stay in this browser, unless the server keeps them."}</p>`}
    <footer>
      <${Kept} />
      ${state.full && html`<p class="bad">The browser's storage is full: export and delete conversations.</p>`}
      <button type="button" class="quiet" onClick=${showStored}><${Icon} name="server" />Open by id</button>
      <button type="button" class="quiet" onClick=${importFiles}><${Icon} name="open" />Import</button>
      <button type="button" class="quiet" onClick=${() => setTheme(next)} title="Colours"><${Icon} name="moon" />${theme}</button>
      <button type="button" class="quiet" onClick=${showShortcuts} title="Keyboard (Ctrl+/)"><${Icon} name="keys" />Keys</button>
      <a class="quiet" href=${address("docs")}>API</a>
      <span class="faint">${version}</span>
    </footer>
  </aside>`;
}

function Kept() {
  const { on, problem } = useShared(sync);
  useShared(access);
  return mayKeep() && html`<label class="kept" title="Every browser with the same key then has all conversations"><input type="checkbox" checked=${on} onChange=${(e) => setKept(e.target.checked)} />Keep on the server</label>
    ${on && problem && html`<p class="bad">Not kept on the server: ${problem}</p>`}`;
}

const close = () => innerWidth <= 900 && view.set({ list: false });

// Drawn again only when its conversation changes: an answer changes one of many, many times.
function Entry({ conversation, isOpen }) {
  const { id, title } = conversation;
  const [name, setName] = useState(null); // while it is edited
  const visit = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens the link elsewhere
    event.preventDefault();
    open(id);
    close();
  };
  const submit = (event) => {
    event.preventDefault();
    if (name.trim()) rename(id, name.trim());
    setName(null);
  };
  return useMemo(() => html`<li class=${isOpen ? "open" : ""}>
    ${name === null
      ? html`<a class="entry" href=${linkTo(id)} aria-current=${isOpen ? "page" : undefined} onClick=${visit}>${title || "Untitled"}</a>
        <${IconButton} icon="edit" label="Rename" onClick=${() => setName(title)} />
        <${IconButton} icon="save" label="Export" onClick=${() => save(`${title.slice(0, 40) || "conversation"}.json`, exported(conversation))} />
        <${IconButton} icon="trash" label="Delete" onClick=${() => erase(id, title)} />`
      : html`<form onSubmit=${submit}><input aria-label="Name of the conversation" autofocus ref=${(place) => place?.focus()} value=${name} onInput=${(e) => setName(e.target.value)}
          onBlur=${submit} onKeyDown=${(e) => e.key === "Escape" && setName(null)} /></form>`}</li>`, [conversation, isOpen, name]);
}

function erase(id, title) {
  const back = discard(id);
  notice(`Deleted “${title || "Untitled"}”.`, { name: "Undo", run: back });
}

function fits(conversation, query) {
  const wanted = query.trim().toLowerCase();
  if (!wanted || conversation.title.toLowerCase().includes(wanted)) return true;
  return Object.values(conversation.nodes).some((node) => textOf(node).toLowerCase().includes(wanted));
}

const importFiles = async () => openDropped(await choose({ accept: ".json,.jsonl,.ndjson,.txt,.harmony", multiple: true }), false);
