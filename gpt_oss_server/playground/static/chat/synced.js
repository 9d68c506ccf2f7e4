// Conversations that the server keeps too: each is a file of the key's owner, so that every browser with the key has it.
// What two browsers wrote is merged as that of two tabs is; a file goes once another holds all that it has.
import { access, call, listed, upload } from "../lib/api.js";
import { read, write } from "../lib/saved.js";
import { createState } from "../lib/state.js";
import { isOver } from "./apply.js";
import { hasMore } from "./merge.js";
import { conversations, discard, receive } from "./store.js";
import { lastStep } from "./tree.js";

const NAME = /^conversation-(.+)\.json$/;
const PURPOSE = "user_data";
const QUIET = 1500; // milliseconds without a change before a conversation is sent
const AGAIN = 20_000; // between two looks at the server's files

export const sync = createState({ on: read("keeps", false), problem: "" });

const sent = read("sent", {}); // by conversation: the state that the server has
const known = new Map(); // by conversation: its files on the server whose content is here
const timers = new Map();
let before = conversations.get().all;
let working = Promise.resolve();

// Without keys, whoever reaches the server reads its files: then only the machine's own page may choose it.
export const mayKeep = () => access.get().held || ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname);

export function setKept(on) {
  write("keeps", on);
  sync.set({ on, problem: "" });
  if (on) look();
}

export function startSync() {
  conversations.watch(({ all }) => {
    const changed = Object.keys(all).filter((id) => all[id] !== before[id]);
    const gone = Object.keys(before).filter((id) => !all[id]);
    before = all;
    if (!isActive()) return;
    changed.forEach(sendSoon);
    for (const id of gone) work(() => forget(id));
  });
  access.watch(() => (known.clear(), look())); // another key has other files
  addEventListener("visibilitychange", look);
  setInterval(look, AGAIN);
  look();
}

const isActive = () => sync.get().on && mayKeep();

const look = () => isActive() && document.visibilityState === "visible" && work(pull);

// One after the other, so that no file is deleted while another is made of it.
function work(act) {
  const done = () => sync.get().problem && sync.set((now) => ({ ...now, problem: "" }));
  working = working.then(act).then(done, (error) => sync.set((now) => ({ ...now, problem: error.message })));
}

function sendSoon(id) {
  clearTimeout(timers.get(id));
  timers.set(id, setTimeout(() => (timers.delete(id), work(() => push(id))), QUIET));
}

async function push(id) {
  const conversation = conversations.get().all[id];
  if (!conversation || !isActive() || isSent(conversation)) return;
  if (Object.values(conversation.nodes).some((node) => lastStep(node) && !isOver(lastStep(node)))) return sendSoon(id);
  const older = known.get(id) ?? [];
  known.set(id, [await upload(new File([JSON.stringify(conversation)], `conversation-${id}.json`), PURPOSE)]);
  note(id, stateOf(conversation));
  await remove(older);
}

async function pull() {
  const files = new Map(); // by conversation
  for (const file of await listed(`v1/files?purpose=${PURPOSE}`)) {
    const id = NAME.exec(file.filename)?.[1];
    if (id) files.set(id, [...(files.get(id) ?? []), file.id]);
  }
  for (const [id, all] of files) if (!all.every((file) => known.get(id)?.includes(file))) await fetchAll(id, all);
  for (const id of [...known.keys()].filter((each) => !files.has(each))) {
    known.delete(id);
    const own = conversations.get().all[id];
    if (own && stateOf(own) === sent[id]) discard(id); // deleted in another browser
  }
  for (const own of Object.values(conversations.get().all)) await push(own.id);
}

// Of several files that hold all there is, every browser leaves the first.
async function fetchAll(id, files) {
  const contents = [];
  for (const file of files) {
    const answer = await unlessGone(call(`v1/files/${file}/content`));
    if (!answer) return; // another browser has just replaced it: the next look finds what it wrote
    contents.push(await answer.json());
  }
  const own = contents.map(receive).at(-1);
  const first = files.find((_, at) => !hasMore(own, contents[at]));
  known.set(id, first ? [first] : files);
  note(id, first && stateOf(own));
  if (first) await remove(files.filter((file) => file !== first));
}

const stateOf = ({ changed, named, head }) => [changed, named, head].join();

const isSent = (own) => stateOf(own) === sent[own.id] && known.get(own.id)?.length === 1;

async function forget(id) {
  const files = known.get(id) ?? [];
  known.delete(id);
  note(id, undefined);
  await remove(files);
}

const remove = (files) => Promise.all(files.map((file) => unlessGone(call(`v1/files/${file}`, { method: "DELETE" }))));

const unlessGone = (answer) => answer.catch((error) => (error.status === 404 ? null : Promise.reject(error)));

function note(id, state) {
  sent[id] = state;
  write("sent", sent);
}
