// Where the user writes: text, files, and how much of the context is used.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { choose } from "../lib/files.js";
import { useShared } from "../lib/state.js";
import { isRunning, send, stopShown, unanswered } from "../chat/runner.js";
import { pending } from "../chat/apply.js";
import { conversations, current } from "../chat/store.js";
import { ends, lastStep, shown } from "../chat/tree.js";
import { attach, attached } from "./dropped.js";
import { Chips } from "./chips.js";
import { Beyond } from "./demo.js";
import { IconButton } from "./icons.js";
import { useModel } from "./server.js";
import { notice } from "./view.js";

export function Composer() {
  const conversation = useShared(conversations, (state) => current(state));
  const model = useModel();
  const [text, setText] = useState("");
  const { files } = useShared(attached);
  const area = useRef();
  const last = shown(conversation).at(-1);
  const running = ends(conversation).some(isRunning);
  const calls = last?.role === "assistant" && lastStep(last) ? pending(lastStep(last)) : [];
  const [asks, setAsks] = useState(false); // whether calls may stay unanswered
  useEffect(() => area.current?.focus(), [conversation.id]);
  useEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight, 260)}px`;
  }, [text]);

  const submit = async (event, sure = false) => {
    event?.preventDefault();
    if (running || (!text.trim() && !files.length)) return;
    if (calls.length && !sure) {
      setAsks(true);
      return;
    }
    try {
      await send(text, files, calls.map(unanswered));
      setAsks(false);
      setText("");
      attached.set({ files: [] });
    } catch (error) {
      notice(error.message);
    }
  };
  const onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const paste = (event) => {
    if (!event.clipboardData.files.length) return; // a text goes into the message
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const back = () => {
    setAsks(false);
    document.querySelector(".calls textarea, .calls button")?.focus();
  };
  return html`<form class="composer" onSubmit=${submit}>
    ${files.length > 0 && html`<ul class="files">${files.map((file, at) => html`<li>${file.name}<${IconButton} icon="close" label=${`Remove ${file.name}`} onClick=${() => attached.set({ files: files.toSpliced(at, 1) })} /></li>`)}</ul>`}
    ${asks && calls.length > 0 && html`<div class="card asks" role="alertdialog" aria-label="A call waits"><p>The model still waits for the result of <code>${calls.map((each) => each.name).join(", ")}</code>.</p>
      <button type="button" class="primary" onClick=${() => submit(null, true)}>Send without it</button><button type="button" onClick=${back}>Back to the form</button></div>`}
    <div class="write">
      <${IconButton} icon="file" label="Attach files" onClick=${async () => attach(await choose({ multiple: true }))} />
      <textarea ref=${area} rows="1" aria-label="Message" placeholder="Message ${model?.id ?? "the model"}" value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKey} onPaste=${paste}></textarea>
      ${running
        ? html`<${IconButton} icon="stop" label="Stop" class="icon-button round" onClick=${stopShown} />`
        : html`<${IconButton} icon="send" label="Send" type="submit" class="icon-button round" disabled=${!text.trim() && !files.length} />`}
    </div>
    <${Chips} />
    <${Beyond} model=${model} text=${text} files=${files} used=${usedBy(conversation)} />
    <${Gauge} used=${usedBy(conversation)} most=${model?.context_length} />
  </form>`;
}

function Gauge({ used, most }) {
  if (!most) return null;
  const share = Math.min(used / most, 1);
  return html`<div class="gauge faint"><meter min="0" max="1" high="0.8" value=${share} aria-label="Context used"></meter>
    <span>${used.toLocaleString()} of ${most.toLocaleString()} tokens</span><span class="keys">Enter sends · Esc stops · Ctrl+/ keys</span></div>`;
}

function usedBy(conversation) {
  const last = shown(conversation).findLast((node) => lastStep(node)?.usage);
  return last ? lastStep(last).usage.total_tokens : 0;
}
