// What the server stores, opened by its id as a conversation of the page: a response with all before it, a
// conversation, or a chat completion.
import { json, listed } from "../lib/api.js";
import { asStep, newStep } from "./apply.js";
import { add, change, newConversation } from "./tree.js";

const READERS = { resp: readResponse, conv: readConversation, chatcmpl: readCompletion };

export async function readStored(id) {
  const read = READERS[/^[a-z]+(?=[_-])/.exec(id)?.[0]];
  if (!read) throw new Error("An id begins with resp_, conv_ or chatcmpl-.");
  const found = await read(id);
  return { ...found, title: found.title || id };
}

async function readResponse(id) {
  const chain = [];
  for (let next = id; next; next = chain[0].response.previous_response_id) {
    const path = `v1/responses/${encodeURIComponent(next)}`;
    const response = await json(path).catch((error) => (chain.length && error.status === 404 ? null : Promise.reject(error)));
    if (!response) break; // deleted: the rest is shown
    chain.unshift({ response, input: await listed(`${path}/input_items`) });
  }
  const grower = new Grower();
  for (const { response, input } of chain) {
    grower.take(input);
    grower.step(asStep(response, grower.outputs()));
  }
  return grower.conversation;
}

async function readConversation(id) {
  const grower = new Grower(id);
  grower.take(await listed(`v1/conversations/${encodeURIComponent(id)}/items`));
  grower.close();
  return grower.conversation;
}

async function readCompletion(id) {
  const path = `v1/chat/completions/${encodeURIComponent(id)}`;
  const [completion, messages] = await Promise.all([json(path), listed(`${path}/messages`)]);
  const grower = new Grower();
  grower.take([...messages, completion.choices[0].message].flatMap(asItems));
  grower.close();
  return grower.conversation;
}

// A conversation of items that no server has.
export function grown(items, title) {
  const grower = new Grower();
  grower.take(items);
  grower.close();
  return { ...grower.conversation, title };
}

function asItems({ role, content, reasoning_content: thought, reasoning = thought, tool_calls: calls, tool_call_id: answers }) {
  if (role === "tool") return [{ type: "function_call_output", call_id: answers, output: textOf(content) }];
  const items = reasoning ? [{ type: "reasoning", content: [{ type: "reasoning_text", text: reasoning }] }] : [];
  const text = textOf(content);
  if (text) items.push({ type: "message", role, content: [{ type: role === "assistant" ? "output_text" : "input_text", text }] });
  return [...items, ...(calls ?? []).map((call) => ({ type: "function_call", call_id: call.id, name: call.function.name, arguments: call.function.arguments }))];
}

const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? `(${part.type})`).join("\n"));

// Grows a conversation from items in their order.
class Grower {
  constructor(conversation = undefined) {
    this.conversation = newConversation();
    this.own = conversation; // the conversation of the server that it is
    this.given = []; // outputs that begin the next step
    this.items = []; // of a step that no response is known for
  }

  take(items) {
    for (const item of items) {
      if ((item.type ?? "message") === "message" && item.role !== "assistant") this.message(item);
      else if (item.type.endsWith("_output") || item.type === "mcp_approval_response") {
        this.close();
        this.given.push(item);
      } else this.items.push(item);
    }
  }

  message({ role, content }) {
    this.close();
    const text = textOf(content);
    this.put({ role: "user", text, conversation: this.own, ...(role === "user" ? {} : { author: role }) });
    if (role === "user" && !this.conversation.title) this.conversation.title = text.trim().slice(0, 60);
  }

  // Ends a step of which no response is known.
  close() {
    const { items } = this;
    this.items = [];
    if (items.length) this.step({ ...newStep(this.outputs()), status: "completed", items, conversation: this.own });
  }

  outputs() {
    this.close();
    const { given } = this;
    this.given = [];
    return given;
  }

  // A step continues the model's message that is last, or begins one.
  step(step) {
    const last = this.conversation.nodes[this.conversation.head];
    if (last?.role === "assistant") this.conversation = change(this.conversation, last.id, { steps: [...last.steps, step] });
    else this.put({ role: "assistant", steps: [step] });
  }

  put(node) {
    [this.conversation] = add(this.conversation, this.conversation.head, node);
  }
}
