// Files that are dropped on the page: traces and conversations are opened, other text files attached to the message.
import { upload } from "../lib/api.js";
import { createState } from "../lib/state.js";
import { conversationsIn } from "../chat/foreign.js";
import { showCollection } from "../chat/collection.js";
import { look } from "./collection.js";
import { isTrace } from "./traces.js";
import { notice } from "./view.js";

const CONVERSATION = "gpt-oss-server/conversation";
const MOST_BYTES = 400_000;
const DOCUMENT = /\.(?:pdf|docx|pptx|xlsx)$/i; // which the server reads
const HARMONY = /\.(?:json|jsonl|ndjson|txt|harmony)$/i;

export const attached = createState({ files: [] }); // to the message that is being written

export const exported = (conversation) => JSON.stringify({ format: CONVERSATION, version: 1, conversation }, null, 1);

// `attaches`: what is neither a trace nor a conversation goes into the message.
export async function openDropped(files, attaches = true) {
  const entries = [];
  for (const file of files) {
    try {
      const found = await entriesIn(file);
      entries.push(...found);
      if (!found.length && !attaches) throw new Error("it holds no conversation");
      if (!found.length) await attach([file]);
    } catch (error) {
      notice(`${file.name} cannot be opened: ${error.message}.`);
    }
  }
  if (entries.length > 1) showCollection(entries);
  else entries.forEach(look);
}

// The traces and conversations of a file: of this page, or of any program that writes Harmony.
async function entriesIn(file) {
  if (!HARMONY.test(file.name)) return [];
  const text = await file.text();
  const found = asJson(text);
  const name = file.name.replace(HARMONY, "");
  if (isTrace(found)) return [{ name: file.name, trace: found }];
  if (found?.format !== CONVERSATION) return conversationsIn(text, name).map((conversation) => ({ name: conversation.title, conversation }));
  if (!found.conversation?.nodes) throw new Error("it holds no conversation");
  return [{ name, conversation: found.conversation }];
}

export async function attach(files) {
  for (const file of files) {
    if (DOCUMENT.test(file.name)) {
      const id = await upload(file, "user_data").catch((error) => notice(`${file.name} cannot be uploaded: ${error.message}`));
      if (id) attached.set((now) => ({ files: [...now.files, { name: file.name, id }] }));
      continue;
    }
    const text = file.size <= MOST_BYTES ? await file.text() : null;
    if (text === null) notice(`${file.name} is larger than ${MOST_BYTES / 1000} kB.`);
    else if (text.includes("\0")) notice(`${file.name} is not a text file.`);
    else attached.set((now) => ({ files: [...now.files, { name: file.name, text }] }));
  }
}

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // some other text
  }
}
