// One run of the workbench: the model continues the very tokens of the prompt.
import { json } from "../lib/api.js";
import { isSpecial } from "../lib/token.js";

export const tokenized = async (text) => {
  const { tokens, token_strs: texts } = await json("tokenize", { method: "POST", body: { prompt: text, return_token_strs: true } });
  return tokens.map((id, at) => ({ id, text: texts[at] }));
};

// The prompt of a request of any API: its very tokens. A text of a user may spell special tokens, and they stay text.
export async function rendered(body) {
  const headers = isOfMessages(body) ? { "anthropic-version": "2023-06-01" } : {};
  const { stream: _, ...rest } = body;
  const { tokens, token_strs: texts } = await json("render?token_strs=true", { method: "POST", body: rest, headers });
  return tokens.map((id, at) => ({ id, text: texts[at] }));
}

const BLOCKS = ["tool_use", "tool_result", "thinking", "redacted_thinking"];

// Whether a body with `messages` is the Messages API's rather than a chat completion's.
function isOfMessages({ messages, system, thinking, tools, stop_sequences: stops }) {
  if (!Array.isArray(messages)) return false;
  const blocks = messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  return Boolean(system ?? thinking ?? stops) || blocks.some((block) => BLOCKS.includes(block.type)) || (tools ?? []).some((tool) => tool.input_schema);
}

// The tokens of an edited prompt: those before and after the edit stay as they are.
export async function edited(tokens, text) {
  const whole = tokens.map((token) => token.text).join("");
  let [start, from] = [0, 0];
  while (start < tokens.length && text.startsWith(tokens[start].text, from)) from += tokens[start++].text.length;
  let [end, to] = [tokens.length, text.length];
  while (end > start && to - tokens[end - 1].text.length >= from && text.slice(0, to).endsWith(tokens[end - 1].text)) to -= tokens[--end].text.length;
  if (whole === text) return tokens;
  for (let more = 0; more < 2 && start > 0 && !isSpecial(tokens[start - 1].id); more++) from -= tokens[--start].text.length; // an edit may join its neighbours
  for (let more = 0; more < 2 && end < tokens.length && !isSpecial(tokens[end].id); more++) to += tokens[end++].text.length;
  return [...tokens.slice(0, start), ...(from < to ? await tokenized(text.slice(from, to)) : []), ...tokens.slice(end)];
}

// The prompt for another effort: Harmony states it in the system message.
export const withEffort = (text, effort) => (effort ? text.replace(/^Reasoning: \w+$/m, `Reasoning: ${effort}`) : text);

export async function run(tokens, knobs, signal) {
  const body = {
    prompt: tokens,
    max_tokens: Number(knobs.max_tokens) || 256,
    temperature: Number(knobs.temperature),
    logprobs: 3,
    skip_special_tokens: false,
    return_token_ids: true,
  };
  if (knobs.seed !== "") body.seed = Number(knobs.seed);
  const began = performance.now();
  const { choices, usage } = await json("v1/completions", { method: "POST", body, signal });
  const [{ token_ids: ids, logprobs, finish_reason: finish }] = choices;
  const found = ids.map((id, at) => ({ id, text: logprobs?.tokens[at] ?? "", logprob: logprobs?.token_logprobs[at] ?? null, top: logprobs?.top_logprobs[at] }));
  return { tokens: found, finish, usage, seconds: (performance.now() - began) / 1000 };
}
