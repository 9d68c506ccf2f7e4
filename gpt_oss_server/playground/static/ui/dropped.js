// Files that are dropped on the page: traces and conversations are opened, other text files attached to the message.
import { createState } from "../lib/state.js";
import { take } from "../chat/store.js";
import { isTrace, openTrace } from "./traces.js";
import { notice } from "./view.js";

const CONVERSATION = "gpt-oss-server/conversation";
const MOST_BYTES = 400_000;

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
  else if (found?.format === CONVERSATION) takeConversation(found);
  else await attach([file]);
}

export async function importFile(file) {
  const found = asJson(await file.text());
  if (found?.format !== CONVERSATION) throw new Error("it holds no conversation");
  takeConversation(found);
}

function takeConversation({ conversation }) {
  if (!conversation?.nodes) throw new Error("it holds no conversation");
  take(conversation);
}

export async function attach(files) {
  for (const file of files) {
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
