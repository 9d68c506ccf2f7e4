// One run of the workbench: the model continues the very tokens of the prompt.
import { json } from "../lib/api.js";

export const tokenized = async (text) => {
  const { tokens, token_strs: texts } = await json("tokenize", { method: "POST", body: { prompt: text, return_token_strs: true } });
  return tokens.map((id, at) => ({ id, text: texts[at] }));
};

export const rendered = async (body) => (await json("render", { method: "POST", body })).text;

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
