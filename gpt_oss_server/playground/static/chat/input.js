// What a request takes from the conversation: what is new if the server has the rest, else all of it.
import { lastStep } from "./tree.js";

// The text of a user's node with its files, as the model reads it.
const textOf = (node) => [
  ...(node.files ?? []).filter((file) => !file.id).map((file) => `File ${file.name}:\n\`\`\`\n${file.text}\n\`\`\``),
  node.text,
].join("\n\n");

// A user's node: the answers to calls that still waited, and the message, with the files that the server has.
function itemsOf(node, given = node.given ?? []) {
  const stored = (node.files ?? []).filter((file) => file.id).map((file) => ({ type: "input_file", file_id: file.id }));
  const text = textOf(node);
  return [...given, { role: node.author ?? "user", content: stored.length ? [...stored, { type: "input_text", text }] : text }];
}

// The input of a step of the last node of `path`, and what it continues. `outputs` answer the calls of that node.
export function inputOf(path, outputs = null) {
  const node = path.at(-1);
  if (outputs) {
    const known = continues(lastStep(node), !node.children.length);
    return known ? { input: outputs, ...known } : { input: wholeInput([...path.slice(0, -1), { ...node, steps: [...node.steps, { input: outputs, items: [] }] }]) };
  }
  const at = path.findLastIndex((each) => each !== node && (each.role === "assistant" || each.conversation));
  const known = at < 0 ? null : continues(lastStep(path[at]) ?? path[at], path.slice(at, -1).every((each) => each.children.length === 1));
  return known ? { input: path.slice(at + 1).flatMap((each) => (each.role === "user" ? itemsOf(each) : [])), ...known } : { input: wholeInput(path) };
}

// A conversation of the server grows at its end only: a branch continues a response instead.
function continues(step, isLast) {
  if (step?.status === "failed") return null;
  if (step?.conversation && isLast) return { conversation: step.conversation };
  return step?.id ? { previous_response_id: step.id } : null;
}

// The conversation as items, for a server that does not have it. Of a step that begins, these are the outputs that it
// answers. Calls without an output, and what a stop cut off, are no input.
export function wholeInput(path) {
  const outputs = path.flatMap((node) => [...(node.given ?? []), ...(node.steps ?? []).flatMap((step) => step.input ?? [])]);
  const answered = new Set(outputs.map((item) => item.call_id));
  return path.flatMap((node) => {
    if (node.role === "user") return itemsOf(node, node.given?.filter((item) => item.call_id));
    const keeps = (item) => item && (["message", "reasoning"].includes(item.type) ? item.content?.length : answered.has(item.call_id));
    return node.steps.flatMap((step, at) => [...(at ? (step.input ?? []).filter((item) => item.call_id) : []), ...step.items.filter(keeps)]);
  });
}
