// All conversations, in memory and in the browser's storage, and which one is open.
import { createState } from "../lib/state.js";
import { names, read, remove, write } from "../lib/saved.js";
import { holds, newConversation } from "./tree.js";

const load = () => {
  const all = {};
  for (const name of names("conversation:")) {
    const found = read(name);
    if (found?.id) all[found.id] = found;
  }
  return all;
};

const fresh = newConversation();
export const conversations = createState({ all: load(), open: read("open", null), fresh, full: false });
if (!conversations.get().all[conversations.get().open]) conversations.set({ open: null });

export const current = (state = conversations.get()) => state.all[state.open] ?? state.fresh;

const waiting = new Map();

// Writes at most once in 300 ms, and when the page is left: a stream changes a conversation often.
function save(conversation) {
  if (waiting.has(conversation.id)) return;
  waiting.set(conversation.id, setTimeout(() => saveNow(conversation.id), 300));
}

function saveNow(id) {
  clearTimeout(waiting.get(id));
  waiting.delete(id);
  const conversation = conversations.get().all[id];
  if (conversation && !write(`conversation:${id}`, conversation)) conversations.set({ full: true });
}

addEventListener("pagehide", () => [...waiting.keys()].forEach(saveNow));

export function update(id, alter) {
  const state = conversations.get();
  const before = state.all[id] ?? (state.fresh.id === id ? state.fresh : null);
  if (!before) return;
  const after = alter(before);
  const opens = state.fresh.id === id ? { open: id, fresh: newConversation() } : {};
  conversations.set({ all: { ...state.all, [id]: after }, ...opens });
  if (opens.open) write("open", id);
  save(after);
}

export function open(id) {
  conversations.set({ open: id });
  write("open", id);
}

export function begin() {
  conversations.set({ open: null, fresh: newConversation() });
  write("open", null);
}

export function discard(id) {
  const { [id]: _, ...all } = conversations.get().all;
  clearTimeout(waiting.get(id));
  waiting.delete(id);
  remove(`conversation:${id}`);
  conversations.set({ all });
  if (conversations.get().open === id) begin();
}

export function take(conversation) {
  conversations.set({ all: { ...conversations.get().all, [conversation.id]: conversation } });
  save(conversation);
  open(conversation.id);
}

// The conversation of this browser that has a response of the server.
export const holding = (response) => Object.values(conversations.get().all).find((each) => holds(each, response))?.id;

export const listed = (state) => Object.values(state.all).sort((a, b) => b.changed - a.changed);
