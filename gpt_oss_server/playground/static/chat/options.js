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
  python: null, // on where the server offers it, until the user decides
  files: false,
  stores: [], // ids of the vector stores that `files` searches
  calls: true, // whether the functions go with a request
  binds: true, // whether the schema does
  functions: [], // { name, description, parameters, answers: [{ when, result }] }
  mcp: [], // { label, url, approval }
};

export const options = createState({ ...DEFAULTS, ...read("options", {}) });
options.watch((value) => write("options", value));

// The types of tools that the server states to offer; null: it has not stated them yet.
export const offers = createState({ types: null });

export const BROWSER = { type: "web_search" };
export const PYTHON = { type: "code_interpreter", container: { type: "auto" } };

// The tools of the server that have a switch, by the option that is the switch.
export const TOOLS = {
  python: { name: "Python", tool: () => PYTHON, include: ["code_interpreter_call.outputs"] },
  browser: { name: "Browser", tool: () => BROWSER, include: ["web_search_call.action.sources", "web_search_call.results"] },
  files: { name: "Files", tool: ({ stores }) => ({ type: "file_search", vector_store_ids: stores }), include: ["file_search_call.results"], needs: "stores" },
};

export const isOffered = (name) => offers.get().types?.includes(TOOLS[name].tool(DEFAULTS).type) ?? false;

export const isOn = (o, name) => (o[name] ?? isOffered(name)) && (!TOOLS[name].needs || o[TOOLS[name].needs].length > 0);

export const hasSchema = (o) => o.binds && o.schema.trim() !== "";

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
  const used = Object.keys(TOOLS).filter((name) => isOn(o, name)).map((name) => TOOLS[name]);
  const tools = [...used.map((each) => each.tool(o)), ...toolsOf(o)];
  if (tools.length) fields.tools = tools;
  include.push(...used.flatMap((each) => each.include));
  if (include.length) fields.include = include;
  return hasSchema(o) ? { ...fields, ...formatOf(o.schema) } : fields;
}

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
  for (const each of o.mcp.filter((server) => server.label)) {
    const tool = { type: "mcp", server_label: each.label, require_approval: each.approval ? "always" : "never" };
    if (each.url) tool.server_url = each.url;
    tools.push(tool);
  }
  for (const each of o.functions.filter((one) => o.calls && one.name)) {
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
