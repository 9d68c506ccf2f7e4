// All conversations, in memory and in the browser's storage, and which one is open.
import { createState } from "../lib/state.js";
import { go, named } from "../lib/place.js";
import { names, read, remove, watch, write } from "../lib/saved.js";
import { hasMore, merged } from "./merge.js";
import { holds, newConversation } from "./tree.js";

const KEPT = "conversation:";

const load = () => {
  const all = {};
  for (const name of names(KEPT)) {
    const found = read(name);
    if (found?.id) all[found.id] = found;
  }
  return all;
};

export const conversations = createState({ all: load(), open: named(), fresh: newConversation(), full: false });

// The address names a conversation that this browser does not have.
export const unknown = () => (named() && !conversations.get().all[named()] ? named() : null);

addEventListener("popstate", () => conversations.set({ open: named() }));

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
  if (!conversation) return;
  const stored = read(KEPT + id);
  if (stored) put(merged(conversation, stored)); // another tab may have written meanwhile
  if (!write(KEPT + id, conversations.get().all[id])) conversations.set({ full: true });
}

addEventListener("pagehide", () => [...waiting.keys()].forEach(saveNow));

const put = (conversation) => conversations.set((state) => ({ ...state, all: { ...state.all, [conversation.id]: conversation } }));

// What another tab has written. If it did not know all that this one has, it is written again, whole.
watch(KEPT, (name, other) => {
  const own = conversations.get().all[name.slice(KEPT.length)];
  if (!other) drop(name.slice(KEPT.length));
  else {
    put(own ? merged(own, other) : other);
    if (own && hasMore(own, other)) save(own);
  }
});

export function update(id, alter) {
  const state = conversations.get();
  const before = state.all[id] ?? (state.fresh.id === id ? state.fresh : null);
  if (!before) return;
  const after = alter(before);
  const opens = state.fresh.id === id ? { open: id, fresh: newConversation() } : {};
  if (opens.open) go(id);
  conversations.set({ all: { ...state.all, [id]: after }, ...opens });
  save(after);
}

export function open(id) {
  go(id, unknown() !== null); // an address that led nowhere is no place to come back to
  conversations.set({ open: id });
}

export function begin() {
  go(null);
  conversations.set({ open: null, fresh: newConversation() });
}

export const rename = (id, title) => update(id, (conversation) => ({ ...conversation, title, named: Date.now() }));

// Returns the way back.
export function discard(id) {
  const { [id]: gone } = conversations.get().all;
  const wasOpen = conversations.get().open === id;
  drop(id);
  remove(KEPT + id);
  return () => {
    put(gone);
    save(gone);
    if (wasOpen) open(id);
  };
}

function drop(id) {
  const { [id]: _, ...all } = conversations.get().all;
  clearTimeout(waiting.get(id));
  waiting.delete(id);
  conversations.set({ all });
  if (conversations.get().open !== id) return;
  go(null, true);
  conversations.set({ open: null, fresh: newConversation() });
}

// What another browser has written. Returns all that is known of it now.
export function receive(other) {
  const own = conversations.get().all[other.id];
  put(own ? merged(own, other) : other);
  save(other);
  return conversations.get().all[other.id];
}

export function take(conversation) {
  put(conversation);
  save(conversation);
  open(conversation.id);
}

// The conversation of this browser that has a response of the server.
export const holding = (response) => Object.values(conversations.get().all).find((each) => holds(each, response))?.id;

export const listed = (state) => Object.values(state.all).sort((a, b) => b.changed - a.changed);
