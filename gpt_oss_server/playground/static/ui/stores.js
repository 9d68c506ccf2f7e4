// The vector stores of the server that an answer may search: chosen from those that exist, or made of files.
import { html, useEffect, useState } from "../vendor/preact.js";
import { json, listed, upload } from "../lib/api.js";
import { choose } from "../lib/files.js";
import { useShared } from "../lib/state.js";
import { isOffered, options } from "../chat/options.js";
import { notice } from "./view.js";

const SOON = 1000; // milliseconds until files that are being read are looked at again

export function Stores() {
  const { stores } = useShared(options);
  const [found, setFound] = useState([]);
  const [busy, setBusy] = useState(false);
  const read = () => listed("v1/vector_stores").then((all) => setFound(all.toReversed()), (error) => notice(error.message));
  useEffect(() => {
    if (isOffered("files")) read();
  }, [isOffered("files")]);
  useEffect(() => {
    const timer = found.some((store) => store.status === "in_progress") ? setTimeout(read, SOON) : 0;
    return () => clearTimeout(timer);
  }, [found]);
  if (!isOffered("files")) return null;
  const pick = (id, on) => {
    const now = on ? [...stores, id] : stores.filter((each) => each !== id);
    options.set({ stores: now, files: now.length > 0 });
  };
  const make = async () => {
    const files = await choose({ multiple: true });
    if (!files.length) return;
    setBusy(true);
    try {
      const ids = await Promise.all(files.map((file) => upload(file, "assistants")));
      const { id } = await json("v1/vector_stores", { method: "POST", body: { name: files.map((file) => file.name).join(", ").slice(0, 60), file_ids: ids } });
      await read();
      pick(id, true);
    } catch (error) {
      notice(error.message);
    }
    setBusy(false);
  };
  return html`<section data-part="files"><h3>Files that the model may search</h3>
    ${found.map((store) => html`<label class="check" key=${store.id}><input type="checkbox" checked=${stores.includes(store.id)} onChange=${(e) => pick(store.id, e.target.checked)} />
      ${store.name || store.id} <span class="faint">${store.file_counts?.completed ?? 0} of ${store.file_counts?.total ?? 0} files read</span></label>`)}
    <div class="row-of"><button type="button" disabled=${busy} onClick=${make}>${busy ? "Uploading…" : "Add files"}</button></div></section>`;
}
