// The Agents SDK for JavaScript: a tool loop, a stream, a handoff, over both APIs.
import OpenAI from "openai";
import { Agent, Runner, setTracingDisabled, tool } from "@openai/agents";
import { OpenAIProvider } from "@openai/agents-openai";
import { z } from "zod";

setTracingDisabled(true);
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "any", maxRetries: 0 });
const weather = tool({
  name: "get_weather", description: "The weather in a city.", parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const results = {};
for (const useResponses of [true, false]) {
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses }) });
  const agent = new Agent({ name: "Guide", instructions: "Be brief.", model: "scripted", tools: [weather] });
  const whole = await runner.run(agent, "Weather in Paris?");
  const streamed = await runner.run(agent, "Weather in Paris?", { stream: true });
  let text = "";
  for await (const chunk of streamed.toTextStream()) text += chunk;
  await streamed.completed;
  const other = new Agent({ name: "Expert", model: "scripted" });
  const desk = Agent.create({ name: "Desk", model: "scripted", handoffs: [other] });
  const handed = await runner.run(desk, "An expert, please.");
  results[useResponses ? "responses" : "chat"] = {
    whole: whole.finalOutput, streamed: text, handed: handed.finalOutput, by: handed.lastAgent.name,
  };
}
console.log(JSON.stringify(results));
