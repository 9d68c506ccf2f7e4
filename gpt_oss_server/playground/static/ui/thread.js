// The messages of the branch that is shown. It follows a growing answer unless the user has scrolled up.
import { html, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { isRunning } from "../chat/runner.js";
import { conversations, current } from "../chat/store.js";
import { pairOf, shown, siblings } from "../chat/tree.js";
import { Assistant, User } from "./message.js";
import { Pair } from "./pair.js";
import { useModel } from "./server.js";
import { Starters } from "./starters.js";
import { view } from "./view.js";

export function Thread() {
  const conversation = useShared(conversations, (state) => current(state));
  const place = useRef();
  const follows = useRef(true);
  const nodes = shown(conversation);
  const { message } = useShared(view);
  const before = useRef(null);
  // A conversation that is opened, and a message that is added, are shown at their end. Another branch keeps its place.
  useLayoutEffect(() => {
    const { id, head } = conversation;
    const last = nodes.at(-1);
    if (before.current !== id || last?.role === "user" || (last && isRunning(last))) follows.current = true;
    else if (head) follows.current = false;
    before.current = id;
  }, [conversation.id, conversation.head]);
  const linked = nodes.some((node) => node.id === message) ? message : null;
  useEffect(() => {
    if (!linked) return;
    follows.current = false;
    document.getElementById(`message-${linked}`).scrollIntoView({ block: "start" });
  }, [linked]);
  useLayoutEffect(() => {
    if (follows.current) place.current.scrollTop = place.current.scrollHeight;
  });
  const onScroll = ({ target }) => {
    follows.current = target.scrollHeight - target.scrollTop - target.clientHeight < 60;
  };
  return html`<section class="thread" ref=${place} onScroll=${onScroll} aria-label="Messages" tabindex="0">
    <div class="column" role="log">
      ${nodes.length ? nodes.map((node) => html`<${Message} key=${node.id} conversation=${conversation} node=${node} />`) : html`<${Welcome} />`}
    </div>
  </section>`;
}

// A message is drawn again only when it changes: those above a growing answer stay as they are. One that cannot be drawn
// leaves the others in place.
function Message({ conversation, node }) {
  const [error, again] = useErrorBoundary();
  const { id } = conversation;
  const versions = siblings(conversation, node.id);
  const pair = pairOf(conversation, node);
  const View = node.role === "user" ? User : Assistant;
  const view = useMemo(() => (pair.length > 1 ? html`<${Pair} conversation=${id} nodes=${pair} versions=${versions} />` : html`<${View} conversation=${id} node=${node} versions=${versions} />`), [id, versions, pair[0], pair[1]]);
  if (!error) return view;
  return html`<p class="faint" role="alert">This message cannot be shown; Export has its text.
    <button type="button" class="quiet" onClick=${again}>Try again</button></p>`;
}

function Welcome() {
  const model = useModel();
  return html`<div class="welcome">
    <h2>See every token</h2>
    <p>Chat with ${model ? html`<strong>${model.id}</strong>` : "the model"}, and read next to it exactly what it saw and wrote.</p>
    ${model?.description && html`<p class="faint">${model.description}</p>`}
    <${Starters} model=${model} />
    <p class="faint">Drop a trace file here to read it.</p>
  </div>`;
}
