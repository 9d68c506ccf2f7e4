// The files that python wrote: listed after a call, saved by a button, because a link carries no key.
import { html, useEffect, useState } from "../vendor/preact.js";
import { call, listed } from "../lib/api.js";
import { save } from "../lib/files.js";
import { Icon } from "./icons.js";
import { notice } from "./view.js";

const JUST_NOW = 10_000; // milliseconds

// Lists them by itself after a call that the page has just seen; those of older ones may be gone.
export function Files({ container, ended }) {
  const [files, setFiles] = useState(null);
  const read = () => listed(`v1/containers/${container}/files`).then(setFiles, (error) => notice(error.message));
  useEffect(() => {
    if (ended && Date.now() - ended < JUST_NOW) read();
  }, [container, ended]);
  if (!files) return html`<button type="button" class="quiet" onClick=${read}><${Icon} name="file" />Files that it wrote</button>`;
  if (!files.length) return null;
  return html`<p class="wrote" aria-label="Files that it wrote">${files.map((file) => html`<${File} key=${file.id} container=${container} file=${file} />`)}</p>`;
}

function File({ container, file }) {
  const name = file.path.split("/").at(-1);
  const get = async () => {
    try {
      const answer = await call(`v1/containers/${container}/files/${file.id}/content`);
      save(name, await answer.blob(), answer.headers.get("content-type") ?? "application/octet-stream");
    } catch (error) {
      notice(error.message);
    }
  };
  return html`<button type="button" class="download" title=${file.path} onClick=${get}><${Icon} name="save" />${name}<span class="faint">${file.bytes.toLocaleString()} bytes</span></button>`;
}
