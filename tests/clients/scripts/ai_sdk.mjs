// The Vercel AI SDK with its providers for OpenAI (Responses, and Chat), compatible servers, and Anthropic.
import { generateObject, generateText, isStepCount, streamText, tool } from "ai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: "any" });
const compatible = createOpenAICompatible({ name: "local", baseURL: process.env.BASE_URL, apiKey: "any" });
const anthropic = createAnthropic({ baseURL: process.env.BASE_URL, apiKey: "any" });
const tools = {
  get_weather: tool({
    description: "The weather in a city.", inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};
const models = {
  responses: openai("scripted"), chat: openai.chat("scripted"), compatible: compatible("scripted"),
  messages: anthropic("scripted"),
};
const results = {};
for (const [name, model] of Object.entries(models)) {
  const options = { model, tools, stopWhen: isStepCount(4), maxRetries: 0 };
  const whole = await generateText({ ...options, prompt: "Weather in Paris?" });
  const streamed = streamText({ ...options, prompt: "Weather in Paris?", onError: ({ error }) => { throw error; } });
  let text = "", reasoning = "";
  for await (const part of streamed.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
    if (part.type === "reasoning-delta") reasoning += part.text;
  }
  const object = await generateObject({
    model, schema: z.object({ city: z.string() }), prompt: "A city?", maxRetries: 0,
  });
  results[name] = {
    text: whole.text, steps: whole.steps.length, results: whole.steps[0].toolResults.map((result) => result.output),
    streamed: text, reasoning, finish: await streamed.finishReason, object: object.object,
    tokens: whole.totalUsage.totalTokens > 0,
  };
}
console.log(JSON.stringify(results));
