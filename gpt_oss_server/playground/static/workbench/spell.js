// A request as a program would send it.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export const asCurl = (url, body) => `curl ${url}/responses \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body, null, 2))}`;

export const asJavaScript = (url, body) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: "unused" });
const response = await client.responses.create(${JSON.stringify(body, null, 2)});
console.log(response.output_text);`;

export const asPython = (url, body) => `from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(url)}, api_key="unused")
response = client.responses.create(
${Object.entries(body).map(([name, value]) => `    ${name}=${literal(value, 1)},`).join("\n")}
)
print(response.output_text)`;

function literal(value, depth) {
  const pad = "    ".repeat(depth + 1);
  const end = "    ".repeat(depth);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((each) => `${pad}${literal(each, depth + 1)},\n`).join("")}${end}]` : "[]";
  if (typeof value === "object") {
    const rows = Object.entries(value).map(([name, each]) => `${pad}${JSON.stringify(name)}: ${literal(each, depth + 1)},\n`);
    return rows.length ? `{\n${rows.join("")}${end}}` : "{}";
  }
  return JSON.stringify(value);
}
