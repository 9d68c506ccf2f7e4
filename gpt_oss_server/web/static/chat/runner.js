// Runs responses: in the background on the server, so that a page that is loaded again reads on.
import { ApiError, call, stream } from "../lib/api.js";
import { add, change, lastStep, pathTo } from "./tree.js";
import { conversations, current, update } from "./store.js";
import { apply, isOver, newStep, pending } from "./apply.js";
import { fieldsOf, options } from "./options.js";

const LOST = ["response_not_found", "previous_response_not_found"];
const active = new Map(); // node → AbortController

export async function send(text, files = []) {
  fieldsOf(options.get()); // fails before anything is added
  const { id, head } = current();
  ask(id, head, { role: "user", text, files });
}

export const edit = (id, node, text) => ask(id, node.parent, { role: "user", text, files: node.files ?? [] });

function ask(id, parent, node) {
  let question;
  update(id, (conversation) => {
    const [next, added] = add(conversation, parent, node);
    question = added;
    return { ...next, title: next.title || node.text.trim().slice(0, 60) || "Files" };
  });
  answer(id, question);
}

export function answer(id, question) {
  let node;
  update(id, (conversation) => {
    const [next, added] = add(conversation, question, { role: "assistant", steps: [] });
    node = added;
    return next;
  });
  step(id, node);
}

// The text of a user's node with its files, as the model reads it.
const inputOf = (node) => [
  ...(node.files ?? []).map((file) => `File ${file.name}:\n\`\`\`\n${file.text}\n\`\`\``),
  node.text,
].join("\n\n");

// Begins a step of an assistant's node: a response to the question, or to the outputs of its calls.
async function step(id, node, outputs = null) {
  let body;
  try {
    body = bodyOf(id, node, outputs);
  } catch (error) {
    setSteps(id, node, (steps) => [...steps, { ...newStep([]), status: "failed", error: error.message }]);
    return;
  }
  setSteps(id, node, (steps) => [...steps, newStep(body.input)]);
  await follow(id, node, (signal) => begun(id, node, body, signal));
}

function bodyOf(id, node, outputs) {
  const path = pathTo(conversations.get().all[id], node);
  const fields = { ...fieldsOf(options.get()), stream: true, background: true, store: true };
  if (outputs) return { ...fields, input: outputs, previous_response_id: lastStep(path.at(-1)).id };
  const before = path.length > 2 ? lastStep(path.at(-3)) : null;
  const previous = before?.status !== "failed" && before?.id;
  return previous ? { ...fields, input: wholeInput([path.at(-2)]), previous_response_id: previous } : { ...fields, input: wholeInput(path) };
}

// The conversation as items, for a server that has forgotten it. Of a step that begins, these are the outputs that
// it answers.
function wholeInput(path) {
  return path.flatMap((node) =>
    node.role === "user"
      ? [{ role: "user", content: inputOf(node) }]
      : node.steps.flatMap((each, at) => [...(at ? each.input ?? [] : []), ...each.items.filter((item) => item && keeps(item))]),
  );
}

const keeps = (item) => ["message", "function_call", "reasoning"].includes(item.type);

async function* begun(id, node, body, signal) {
  try {
    yield* stream("v1/responses", { method: "POST", body, signal });
  } catch (error) {
    if (!body.previous_response_id || !LOST.includes(error.code)) throw error;
    const { previous_response_id: _, ...whole } = body;
    whole.input = wholeInput(pathTo(conversations.get().all[id], node));
    yield* stream("v1/responses", { method: "POST", body: whole, signal });
  }
}

async function follow(id, node, events) {
  const control = new AbortController();
  active.set(node, control);
  let latest = lastStep(conversations.get().all[id].nodes[node]);
  let due = 0;
  const show = () => {
    due = 0;
    setSteps(id, node, (steps) => [...steps.slice(0, -1), latest]);
  };
  try {
    for await (const event of events(control.signal)) {
      latest = apply(latest, event);
      if (latest.id && !due) due = setTimeout(show, 60); // many tokens, one drawing
    }
    if (!isOver(latest)) latest = { ...latest, status: "failed", error: "The stream ended too early. Load the page again to read on." };
  } catch (error) {
    if (error.name === "AbortError") return;
    latest = { ...latest, status: "failed", error: error.message };
  } finally {
    clearTimeout(due);
    active.delete(node);
  }
  show();
  answerCanned(id, node, pending(latest));
}

function answerCanned(id, node, calls) {
  if (!calls.length) return;
  const canned = new Map(options.get().functions.filter((one) => one.canned?.trim()).map((one) => [one.name, one.canned]));
  if (calls.every((item) => item.type === "function_call" && canned.has(item.name))) {
    proceed(id, node, calls.map((item) => outputFor(item, canned.get(item.name))));
  }
}

export const outputFor = (item, output) => ({
  type: item.type === "custom_tool_call" ? "custom_tool_call_output" : "function_call_output",
  call_id: item.call_id,
  output,
});

export const approvalFor = (item, approve) => ({ type: "mcp_approval_response", approval_request_id: item.id, approve });

// Continues a message after its calls have been answered.
export const proceed = (id, node, outputs) => step(id, node, outputs);

export async function stop(id, node) {
  const last = lastStep(conversations.get().all[id].nodes[node]);
  if (last?.id) await call(`v1/responses/${last.id}/cancel`, { method: "POST" }).catch(() => {});
  else {
    active.get(node)?.abort();
    setSteps(id, node, (steps) => [...steps.slice(0, -1), { ...last, status: "cancelled" }]);
  }
}

// After a reload: responses that were being read go on where the page left them.
export function resume() {
  for (const conversation of Object.values(conversations.get().all)) {
    for (const node of Object.values(conversation.nodes)) {
      const last = lastStep(node);
      if (!last || isOver(last) || active.has(node.id)) continue;
      if (!last.id) setSteps(conversation.id, node.id, (steps) => [...steps.slice(0, -1), { ...last, status: "failed", error: "The page was left before the server answered." }]);
      else follow(conversation.id, node.id, (signal) => replay(last, signal));
    }
  }
}

async function* replay(last, signal) {
  const path = `v1/responses/${last.id}`;
  try {
    yield* stream(`${path}?stream=true&starting_after=${last.sequence}`, { signal });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    const response = await (await call(path, { signal })).json(); // its events are gone; its end is stored
    yield { type: `response.${response.status}`, response, sequence_number: last.sequence };
  }
}

function setSteps(id, node, alter) {
  update(id, (conversation) => {
    const found = conversation.nodes[node];
    return found ? change({ ...conversation, changed: Date.now() }, node, { steps: alter(found.steps) }) : conversation;
  });
}

export const isRunning = (node) => node?.role === "assistant" && (!node.steps.length || !isOver(lastStep(node)));
