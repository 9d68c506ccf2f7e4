// Trace files: opened by drag and drop or from a dialog, saved from the page.
import { choose, save } from "../lib/files.js";
import { traceOf } from "../lib/api.js";
import { notice, showPanel, view } from "./view.js";

export async function openDropped(files) {
  for (const file of files) await openTrace(file);
}

export const openDialog = async () => openDropped(await choose({ accept: ".json" }));

async function openTrace(file) {
  try {
    const trace = JSON.parse(await file.text());
    if (trace.format !== "gpt-oss-server/trace") throw new Error("it is no trace");
    if (trace.version !== 1) throw new Error(`its version is ${trace.version}, and this page reads version 1`);
    view.set({ trace: { name: file.name, trace } });
    showPanel("tokens");
  } catch (error) {
    notice(`${file.name} cannot be opened: ${error.message}.`);
  }
}

export async function saveTrace(id, whole) {
  try {
    save(`${id}.trace.json`, JSON.stringify(await traceOf(id, undefined, whole)));
  } catch (error) {
    notice(error.message);
  }
}
