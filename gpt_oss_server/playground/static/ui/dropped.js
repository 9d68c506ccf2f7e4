// Files that are dropped on the page: traces and conversations are opened, other text files attached to the message.
import { json } from "../lib/api.js";
import { createState } from "../lib/state.js";
import { conversationsIn } from "../chat/foreign.js";
import { take } from "../chat/store.js";
import { isTrace, openTrace } from "./traces.js";
import { notice } from "./view.js";

const CONVERSATION = "gpt-oss-server/conversation";
const MOST_BYTES = 400_000;
const DOCUMENT = /\.(?:pdf|docx|pptx|xlsx)$/i; // which the server reads
const HARMONY = /\.(?:json|jsonl|ndjson|txt|harmony)$/i;

export const attached = createState({ files: [] }); // to the message that is being written

export const exported = (conversation) => JSON.stringify({ format: CONVERSATION, version: 1, conversation }, null, 1);

export async function openDropped(files) {
  for (const file of files) {
    try {
      await openFile(file);
    } catch (error) {
      notice(`${file.name} cannot be opened: ${error.message}.`);
    }
  }
}

async function openFile(file) {
  const found = file.name.endsWith(".json") ? asJson(await file.text()) : null;
  if (isTrace(found)) openTrace(file.name, found);
  else if (!HARMONY.test(file.name) || !(await opens(file, found))) await attach([file]);
}

export async function importFile(file) {
  if (!(await opens(file, asJson(await file.text())))) throw new Error("it holds no conversation");
}

// Whether a file held conversations: of this page, or of any program that writes Harmony. All of them are taken.
async function opens(file, found) {
  if (found?.format === CONVERSATION) {
    takeConversation(found);
    return true;
  }
  const others = conversationsIn(await file.text(), file.name.replace(HARMONY, ""));
  for (const each of others.toReversed()) take(each);
  if (others.length > 1) notice(`${others.length} conversations are opened.`);
  return others.length > 0;
}

function takeConversation({ conversation }) {
  if (!conversation?.nodes) throw new Error("it holds no conversation");
  take(conversation);
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

// The server keeps the file; a message or a vector store names it by the id that is returned.
export async function upload(file, purpose) {
  const form = new FormData();
  form.append("purpose", purpose);
  form.append("file", file, file.name);
  return (await json("v1/files", { method: "POST", form })).id;
}

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // some other text
  }
}
