// A conversation: a tree of messages. Editing or regenerating adds a branch; nothing is overwritten.
//
// A user's node has text and files. An assistant's node has steps: one response each, because the answers to
// function calls continue the same message.
const newId = () => crypto.getRandomValues(new Uint32Array(2)).reduce((text, part) => text + part.toString(36), "n");

export const newConversation = () => ({
  id: newId(),
  title: "",
  changed: Date.now(),
  nodes: {},
  root: [],
  head: null, // the last node of the branch that is shown
});

export function add(conversation, parent, node) {
  const id = newId();
  const nodes = { ...conversation.nodes, [id]: { ...node, id, parent, children: [], chosen: null } };
  let root = conversation.root;
  if (parent === null) root = [...root, id];
  else nodes[parent] = { ...nodes[parent], children: [...nodes[parent].children, id], chosen: id };
  return [{ ...conversation, nodes, root, head: id, changed: Date.now() }, id];
}

export function change(conversation, id, fields) {
  const node = { ...conversation.nodes[id], ...fields };
  return { ...conversation, nodes: { ...conversation.nodes, [id]: node } };
}

// The nodes from the first message to `id`.
export function pathTo(conversation, id) {
  const path = [];
  for (let at = id; at; at = conversation.nodes[at]?.parent) {
    if (conversation.nodes[at]) path.unshift(conversation.nodes[at]);
  }
  return path;
}

// Whether a step of the conversation is this response of the server.
export const holds = ({ nodes }, response) => Object.values(nodes).some((node) => node.steps?.some((step) => step.id === response));

export const shown = (conversation) => pathTo(conversation, conversation.head);

// What stands at the end of the branch that is shown: its last node, and the one beside it.
export function ends(conversation) {
  const last = conversation.nodes[conversation.head];
  return last ? pairOf(conversation, last) : [];
}

// The nodes that stand side by side with one, itself among them, in their order.
export function pairOf({ nodes }, node) {
  const pair = nodes[node.parent]?.pair;
  return pair?.includes(node.id) ? pair.map((id) => nodes[id]).filter(Boolean) : [node];
}

export function siblings(conversation, id) {
  const { parent } = conversation.nodes[id];
  return parent ? conversation.nodes[parent].children : conversation.root;
}

// Shows another branch: the given node, and below it what was shown last.
export function choose(conversation, id) {
  const nodes = { ...conversation.nodes };
  const { parent } = nodes[id];
  if (parent) nodes[parent] = { ...nodes[parent], chosen: id };
  let head = id;
  for (let next = id; next; next = nodes[head].chosen ?? nodes[head].children.at(-1)) head = next;
  return { ...conversation, nodes, head };
}

export const textOf = (node) =>
  node.role === "user"
    ? node.text
    : (node.steps ?? []).flatMap((step) => step.items).filter((item) => item?.type === "message").map(messageText).join("\n\n");

export const messageText = (item) => (item.content ?? []).map((part) => part.text ?? part.refusal ?? "").join("");

export const lastStep = (node) => node.steps?.at(-1);
