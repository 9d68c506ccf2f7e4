// Traces: opened from files and from links to this server, saved from the page.
import { json, traceOf } from "../lib/api.js";
import { choose, copy, save } from "../lib/files.js";
import { notice, showPanel, view } from "./view.js";
import { address } from "../lib/place.js";

const FORMAT = "gpt-oss-server/trace";
const LINK = "#trace=";

export const isTrace = (found) => found?.format === FORMAT;

export async function openDialog() {
  for (const file of await choose({ accept: ".json" })) {
    try {
      openTrace(file.name, JSON.parse(await file.text()));
    } catch (error) {
      notice(`${file.name} cannot be opened: ${error.message}.`);
    }
  }
}

export function openTrace(name, trace) {
  if (!isTrace(trace)) throw new Error("it is no trace");
  if (trace.version !== 1) throw new Error(`its version is ${trace.version}, and this page reads version 1`);
  view.set({ trace: { name, trace } });
  showPanel("tokens");
}

export async function saveTrace(id, whole) {
  try {
    save(`${id}.trace.json`, JSON.stringify(await traceOf(id, undefined, whole)));
  } catch (error) {
    notice(error.message);
  }
}

// A link that opens the trace of a response in this page, for as long as the server keeps the trace.
export async function copyLink(id) {
  await copy(`${address("./")}${LINK}v1/responses/${id}/trace`);
  notice("The link is copied. It works for as long as the server keeps the trace.");
}

// Opens the trace that the page's address names. It is read from this server only: nothing else can be asked for.
export async function openLinked() {
  if (!location.hash.startsWith(LINK)) return;
  const place = decodeURIComponent(location.hash.slice(LINK.length));
  try {
    if (new URL(address(place)).origin !== location.origin) throw new Error("it is on another server: save it as a file, and drop the file here");
    openTrace(place.split("/").filter((part) => part && part !== "trace").at(-1), await json(place));
    notice("");
  } catch (error) {
    notice(`The trace of the link cannot be opened: ${error.message.replace(/\.$/, "")}.`);
  }
}
