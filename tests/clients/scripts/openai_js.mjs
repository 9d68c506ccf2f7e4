// The official JavaScript SDK: both APIs, streams, tools, parsed answers, WebSocket.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "any", maxRetries: 0 });
const model = "scripted";
const results = {};

const tool = {
  type: "function", name: "get_weather", strict: false, description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const first = await client.responses.create({ model, input: "Weather in Paris?", tools: [tool] });
const call = first.output.find((item) => item.type === "function_call");
results.call = [call.name, JSON.parse(call.arguments)];
const second = await client.responses.create({
  model, previous_response_id: first.id, tools: [tool],
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
});
results.answer = second.output_text;

const stream = client.responses.stream({ model, input: "Hi" });
let deltas = "";
stream.on("response.output_text.delta", (event) => (deltas += event.delta));
results.streamed = [(await stream.finalResponse()).output_text, deltas];

const parsed = await client.responses.parse({
  model, input: "A city?", text: { format: zodTextFormat(z.object({ city: z.string() }), "place") },
});
results.parsed = parsed.output_parsed;

const runner = client.chat.completions.runTools({
  model, messages: [{ role: "user", content: "Weather in Paris?" }], stream: true,
  tools: [{ type: "function", function: {
    name: "get_weather", description: "The weather.", parse: JSON.parse,
    parameters: tool.parameters, function: ({ city }) => `sunny in ${city}`,
  } }],
});
results.chat = await runner.finalContent();

results.socket = await new Promise((resolve, reject) => {
  const socket = new ResponsesWS(client);
  let text = "";
  socket.on("error", reject);
  socket.on("event", (event) => {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") { socket.close(); resolve(text); }
  });
  socket.send({ type: "response.create", model, input: "Hi", store: false });
});
console.log(JSON.stringify(results));
