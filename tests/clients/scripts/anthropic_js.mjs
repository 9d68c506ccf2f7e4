// Anthropic's SDK for JavaScript: both classes of messages, streams, typed answers, the tool runner.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const client = new Anthropic({ baseURL: process.env.BASE_URL.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0 });
const place = z.object({ city: z.string() });
const asked = { model: "scripted", max_tokens: 1000, thinking: { type: "adaptive" } };
const weather = { ...asked, messages: [{ role: "user", content: "Weather in Paris?" }] };
const tool = { name: "get_weather", description: "The weather.", input_schema: z.toJSONSchema(place) };
const kinds = (message) => message.content.map((block) => block.type);
const results = { created: [], streamed: [] };

for (const messages of [client.messages, client.beta.messages]) {
  results.created.push(kinds(await messages.create({ ...weather, tools: [tool] })));
  const stream = messages.stream({ ...weather, tools: [tool] });
  let input;
  stream.on("inputJson", (_, snapshot) => (input = snapshot));
  const message = await stream.finalMessage();
  results.streamed.push([kinds(message), JSON.stringify(input) === JSON.stringify(message.content[1].input), message.stop_reason]);
}
const parsed = await client.messages.parse({ ...weather, output_config: { format: zodOutputFormat(place) } });
results.parsed = parsed.parsed_output.city;
const get_weather = betaZodTool({
  name: "get_weather", description: "The weather.", inputSchema: place, run: ({ city }) => `sunny in ${city}`,
});
results.run = (await client.beta.messages.toolRunner({ ...weather, tools: [get_weather] })).content.at(-1).text;
console.log(JSON.stringify(results));
