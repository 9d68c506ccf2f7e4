// Runs responses and follows their events, also after the page was loaded again.
import { ApiError } from "../lib/api.js";
import { add, change, ends, lastStep, pathTo } from "./tree.js";
import { conversations, current, update } from "./store.js";
import { apply, isOver, newStep, pending } from "./apply.js";
import { inputOf, wholeInput } from "./input.js";
import { fieldsOf, options, resultFor } from "./options.js";
import { connection, reachable } from "../lib/connection.js";
import { TAB } from "../lib/saved.js";
import { cancel, outlives, TRANSPORTS, unseen } from "./transports.js";

const LOST = ["response_not_found", "previous_response_not_found", "conversation_not_found"];
const GONE = { status: "cancelled", id: null }; // the server keeps nothing of it
const PAUSE = 500; // milliseconds before a lost connection is opened again, twice as long each time
const MOST_LOST = 4; // in a row, while the server can be reached
const STALE = 60_000; // milliseconds without a change after which another tab no longer reads an answer
const active = new Map(); // node → AbortController

// `given` answers the calls that the message before still waits with.
export async function send(text, files = [], given = []) {
  fieldsOf(options.get()); // fails before anything is added
  const { id, head } = current();
  ask(id, head, { role: "user", text, files, given });
}

export const edit = (id, node, text) => ask(id, node.parent, { role: "user", text, files: node.files ?? [], given: node.given ?? [] });

function ask(id, parent, node) {
  let question;
  update(id, (conversation) => {
    const [next, added] = add(conversation, parent, node);
    question = added;
    return { ...next, title: next.title || node.text.trim().slice(0, 60) || "Files" };
  });
  answer(id, question);
}

// `given` takes the place of options for this answer.
export function answer(id, question, given = undefined) {
  let node;
  update(id, (conversation) => {
    const [next, added] = add(conversation, question, { role: "assistant", steps: [], with: given });
    node = added;
    return next;
  });
  step(id, node);
  return node;
}

// Another answer, which stands beside one.
export function beside(id, node, given) {
  const added = answer(id, node.parent, given);
  update(id, (conversation) => change(conversation, node.parent, { pair: [node.id, added] }));
}

// Begins a step of an assistant's node: a response to the question, or to the outputs of its calls.
async function step(id, node, outputs = null) {
  let body;
  try {
    body = bodyOf(id, node, outputs);
  } catch (error) {
    setSteps(id, node, (steps) => [...steps, { ...newStep([]), status: "failed", error: error.message }]);
    return;
  }
  const { transport } = options.get();
  setSteps(id, node, (steps) => [...steps, { ...newStep(outputs ?? []), transport, tab: TAB }]);
  await follow(id, node, (signal) => begun(id, node, body, TRANSPORTS[transport].events, signal));
}

function bodyOf(id, node, outputs) {
  const { transport } = options.get();
  const path = pathTo(conversations.get().all[id], node);
  return { ...fieldsOf({ ...options.get(), ...path.at(-1).with }), ...TRANSPORTS[transport].fields, ...inputOf(path, outputs) };
}

async function* begun(id, node, body, events, signal) {
  try {
    yield* events(body, signal);
  } catch (error) {
    if (!LOST.includes(error.code)) throw error;
    const { previous_response_id: _, conversation: __, ...whole } = body;
    whole.input = wholeInput(pathTo(conversations.get().all[id], node));
    yield* events(whole, signal);
  }
}

async function follow(id, node, events) {
  const control = new AbortController();
  active.set(node, control);
  let latest = lastStep(conversations.get().all[id].nodes[node]);
  let due = 0;
  const show = () => {
    due = 0;
    if (control.signal.aborted) return; // `stop` has written how it ended
    setSteps(id, node, (steps) => [...steps.slice(0, -1), latest]);
  };
  const take = (event) => {
    latest = apply(latest, event);
    if (latest.id && !due) due = setTimeout(show, 60); // many tokens, one drawing
    return latest;
  };
  try {
    await readOn(latest, events, take, control.signal);
  } catch (error) {
    if (control.signal.aborted) return;
    latest = { ...latest, status: "failed", error: error.message };
  } finally {
    clearTimeout(due);
    active.delete(node);
  }
  show();
  answerCanned(id, node, pending(latest));
}

// Reads events to the end of the response. If the connection is lost while the server generates, it reads on as soon as
// there is one again.
async function readOn(step, events, take, signal) {
  let source = events;
  for (let lost = 0; ; lost++) {
    let problem = new Error("The stream ended too early.");
    try {
      for await (const event of source(signal)) {
        step = take(event);
        lost = 0;
      }
      if (isOver(step)) return;
    } catch (error) {
      const isAnswer = error instanceof ApiError && error.status !== 0;
      if (error.name === "AbortError" || isAnswer || !step.id || !outlives(step)) throw error;
      problem = error;
    }
    if (!step.id || !outlives(step) || lost >= MOST_LOST) throw problem;
    if (connection.get().lost) lost = 0;
    await reachable(PAUSE * 2 ** lost, signal);
    source = (given) => unseen(step, given);
  }
}

function answerCanned(id, node, calls) {
  const results = calls.map((item) => resultFor(options.get(), item));
  if (calls.length && results.every((result) => result !== undefined)) proceed(id, node, calls.map((item, at) => outputFor(item, results[at])));
}

export const outputFor = (item, output) => ({
  type: item.type === "custom_tool_call" ? "custom_tool_call_output" : "function_call_output",
  call_id: item.call_id,
  output,
});

export const approvalFor = (item, approve) => ({ type: "mcp_approval_response", approval_request_id: item.id, approve });

// For a call that the user does not answer.
export const unanswered = (item) => (item.type === "mcp_approval_request" ? approvalFor(item, false) : outputFor(item, "The user did not answer this call."));

// Continues a message after its calls have been answered.
export const proceed = (id, node, outputs) => step(id, node, outputs);

export async function stop(id, node) {
  const last = lastStep(conversations.get().all[id].nodes[node]);
  if (last?.id && outlives(last)) {
    const problem = await cancel(last.id).then(() => null, (error) => (error.status === 400 ? null : error));
    if (problem?.status !== 0) {
      if (problem) setStep(id, node, { error: problem.message });
      return;
    }
  }
  active.get(node)?.abort();
  setStep(id, node, GONE);
}

// Stops what is written at the end of the branch that is shown.
export function stopShown() {
  const conversation = current();
  for (const node of ends(conversation)) if (isRunning(node)) stop(conversation.id, node.id);
}

// After a reload, responses are read on from where the page left them; those over WebSocket ended with the page. What
// another tab is reading is left to it.
export function resume() {
  let later = false;
  for (const conversation of Object.values(conversations.get().all)) {
    for (const node of Object.values(conversation.nodes)) {
      const last = lastStep(node);
      if (!last || isOver(last) || active.has(node.id)) continue;
      const elsewhere = last.tab !== TAB && Date.now() - conversation.changed < STALE;
      if (elsewhere && !(last.id && outlives(last))) later = true;
      else if (!outlives(last)) setStep(conversation.id, node.id, { ...GONE, why: "The page was left, and an answer over WebSocket ends with its page." });
      else if (!last.id) setStep(conversation.id, node.id, { status: "failed", error: "The page was left before the server answered." });
      else follow(conversation.id, node.id, (signal) => unseen(last, signal));
    }
  }
  if (later) setTimeout(resume, STALE);
}

const setStep = (id, node, fields) => setSteps(id, node, (steps) => [...steps.slice(0, -1), { ...steps.at(-1), ...fields }]);

function setSteps(id, node, alter) {
  update(id, (conversation) => {
    const found = conversation.nodes[node];
    return found ? change({ ...conversation, changed: Date.now() }, node, { steps: alter(found.steps) }) : conversation;
  });
}

export const isRunning = (node) => node?.role === "assistant" && (!node.steps.length || !isOver(lastStep(node)));
