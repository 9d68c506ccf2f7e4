// The events of a response become a step: its items as far as they are known. Items are replaced, not changed,
// so that only what is new is drawn again.
const TEXT = {
  "response.output_text.delta": "content",
  "response.refusal.delta": "content",
  "response.reasoning_text.delta": "content",
  "response.reasoning.delta": "content", // Open Responses' name
};
const FIELD = {
  "response.function_call_arguments.delta": "arguments",
  "response.mcp_call_arguments.delta": "arguments",
  "response.code_interpreter_call_code.delta": "code",
  "response.custom_tool_call_input.delta": "input",
};

export const newStep = (input) => ({ input, id: null, status: "starting", items: [], sequence: -1, began: Date.now(), times: {} });

export const isOver = (step) => !["starting", "in_progress", "queued"].includes(step.status);

export function apply(step, event) {
  const next = { ...step, sequence: event.sequence_number ?? step.sequence };
  const at = event.output_index;
  if (event.type === "response.output_item.added") {
    next.items = put(step.items, at, event.item);
    next.times = { ...step.times, [at]: { began: Date.now() } };
  } else if (event.type === "response.output_item.done") {
    next.items = put(step.items, at, unscored(event.item));
    next.times = { ...step.times, [at]: { ...step.times[at], ended: Date.now(), tokens: scored(event.item) } };
  } else if (event.type in TEXT) {
    next.first ??= Date.now();
    next.items = put(step.items, at, withText(step.items[at], event));
  } else if (event.type in FIELD) {
    const name = FIELD[event.type];
    next.first ??= Date.now();
    next.items = put(step.items, at, { ...step.items[at], [name]: (step.items[at][name] ?? "") + event.delta });
  } else if (event.type === "error") {
    next.status = "failed";
    next.error = event.message ?? event.error?.message;
  } else if (event.response && event.type.startsWith("response.")) {
    next.id = event.response.id;
    next.status = event.response.status;
    next.conversation = event.response.conversation?.id;
    if (isOver(next)) end(next, event.response);
  }
  return next;
}

// A response that was read as a whole; of one that still runs, the events are read from the first.
export const asStep = (response, input) => apply(newStep(input), { type: "response.read", response });

function end(step, response) {
  step.items = response.output.map(unscored);
  step.usage = response.usage;
  step.schema = response.text?.format?.schema;
  step.error = response.error?.message;
  step.why = response.incomplete_details?.message ?? response.incomplete_details?.reason;
  step.ended = Date.now();
}

// The number of an item's tokens, if it has a score for each.
const scored = (item) => item.content?.reduce((sum, part) => sum + (part.logprobs?.length ?? 0), 0) || undefined;

// Scores are in the trace; the browser's storage has no room for them.
function unscored(item) {
  if (!item.content?.some((part) => part.logprobs)) return item;
  return { ...item, content: item.content.map(({ logprobs: _, ...part }) => part) };
}

function put(items, at, item) {
  const next = [...items];
  next[at] = item;
  return next;
}

function withText(item, event) {
  const content = [...(item.content ?? [])];
  const part = content[event.content_index] ?? { type: item.type === "reasoning" ? "reasoning_text" : "output_text", text: "" };
  content[event.content_index] = { ...part, text: (part.text ?? "") + event.delta };
  return { ...item, content };
}

// Calls that wait for the user: functions without an output, and approvals without an answer.
export function pending(step) {
  if (step.status !== "completed") return [];
  return step.items.filter((item) => item && ["function_call", "custom_tool_call", "mcp_approval_request"].includes(item.type));
}
