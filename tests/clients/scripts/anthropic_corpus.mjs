// Streams as many messages as TURNS says, and reports how the SDK has put each together.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.BASE_URL.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0 });
const tool = { name: "f", input_schema: { type: "object", properties: { city: { type: "string" } } } };
const messages = [{ role: "user", content: "Hi" }];
const asked = { model: "scripted", max_tokens: 1000, thinking: { type: "adaptive" }, tools: [tool] };

async function streamed() {
  try {
    const message = await client.beta.messages.stream({ messages, ...asked }).finalMessage();
    const keys = ["type", "text", "thinking", "name", "input"];
    const shown = message.content.map((block) => keys.map((key) => block[key] ?? null));
    return [message.stop_reason, message.usage.output_tokens, shown];
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    return [error.error.error.message];
  }
}

const results = [];
for (let turn = 0; turn < Number(process.env.TURNS); turn++) results.push(await streamed());
console.log(JSON.stringify({ messages: results }));
