// What a request asks for besides its text: the setup panel changes it, and the browser keeps it.
import { createState } from "../lib/state.js";
import { read, write } from "../lib/saved.js";

export const DEFAULTS = {
  model: "",
  transport: "http", // a name of TRANSPORTS
  instructions: "",
  effort: "",
  budget: "",
  temperature: "",
  top_p: "",
  seed: "",
  max_output_tokens: "",
  scores: true,
  schema: "",
  browser: false,
  python: false,
  functions: [], // { name, description, parameters, answers: [{ when, result }] }
  mcp: [], // { label, url, approval }
};

export const options = createState({ ...DEFAULTS, ...read("options", {}) });
options.watch((value) => write("options", value));

const number = (text) => (text === "" || text === null || Number.isNaN(Number(text)) ? undefined : Number(text));

// The fields of a request, without its input. Throws a sentence if a schema is not JSON.
export function fieldsOf(o) {
  const fields = {};
  if (o.model) fields.model = o.model;
  if (o.instructions.trim()) fields.instructions = o.instructions;
  const reasoning = {};
  if (o.effort) reasoning.effort = o.effort;
  if (number(o.budget) !== undefined) reasoning.max_tokens = number(o.budget);
  if (Object.keys(reasoning).length) fields.reasoning = reasoning;
  for (const name of ["temperature", "top_p", "seed", "max_output_tokens"]) {
    if (number(o[name]) !== undefined) fields[name] = number(o[name]);
  }
  const include = [];
  if (o.scores) {
    include.push("message.output_text.logprobs", "reasoning.reasoning_text.logprobs");
    fields.top_logprobs = 4;
  }
  const tools = toolsOf(o);
  if (tools.length) fields.tools = tools;
  if (o.python) include.push("code_interpreter_call.outputs");
  if (o.browser) include.push("web_search_call.action.sources", "web_search_call.results");
  if (include.length) fields.include = include;
  return o.schema.trim() ? { ...fields, ...formatOf(o.schema) } : fields;
}

export const BROWSER = { type: "web_search" };
export const PYTHON = { type: "code_interpreter", container: { type: "auto" } };

export const formatOf = (schema) => ({
  text: { format: { type: "json_schema", name: "answer", strict: true, schema: parsed(schema, "The schema of the answer") } },
});

// The result of a call that the user has given in advance.
export function resultFor(o, call) {
  const answers = o.functions.find((each) => each.name === call.name)?.answers ?? [];
  return answers.find(({ when, result }) => result.trim() && call.arguments?.toLowerCase().includes(when.trim().toLowerCase()))?.result;
}

function toolsOf(o) {
  const tools = [];
  if (o.browser) tools.push(BROWSER);
  if (o.python) tools.push(PYTHON);
  for (const each of o.mcp.filter((server) => server.label)) {
    const tool = { type: "mcp", server_label: each.label, require_approval: each.approval ? "always" : "never" };
    if (each.url) tool.server_url = each.url;
    tools.push(tool);
  }
  for (const each of o.functions.filter((one) => one.name)) {
    tools.push({
      type: "function",
      name: each.name,
      description: each.description,
      parameters: parsed(each.parameters || '{"type":"object","properties":{}}', `The parameter schema of ${each.name}`),
    });
  }
  return tools;
}

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is no valid JSON: ${error.message}`);
  }
}
