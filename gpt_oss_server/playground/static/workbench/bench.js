// What lies on the workbench. It stays while other panels are open.
import { createState } from "../lib/state.js";
import { parseRequest } from "./parse.js";
import { edited, rendered, run, tokenized, withEffort } from "./run.js";

const EXAMPLE = '{\n  "input": "What is 17 times 23?",\n  "reasoning": {"effort": "low"}\n}';
const PAUSE = 250; // milliseconds without a key before an edited prompt is read
const knobs = (temperature, seed) => ({ temperature, seed, max_tokens: 128, effort: "" });

export const bench = createState({
  request: EXAMPLE,
  text: "", // the prompt
  tokens: [], // of the prompt: as they were sampled until the text is edited
  cut: null, // the token after which the model continues; null: the last one
  other: null, // the text of Run B's own prompt
  a: knobs(0, ""),
  b: knobs(1, 1),
  runs: [], // side by side, each with its name
  part: null, // of branches: the place at which they part; null: the runs A and B
});

// A request whose prompt cannot be shown leaves no other prompt in its place.
export async function showPrompt() {
  bench.set({ text: "", tokens: [], cut: null, runs: [], part: null });
  const { request } = bench.get();
  if (request.trimStart().startsWith("<|start|>")) await layOut(await tokenized(request.trim())); // a prompt already
  else await layOut(await rendered(parseRequest(request)));
  bench.set({ cut: null });
}

// Puts tokens on the bench that a model has seen or written.
export function layOut(tokens) {
  bench.set({ text: tokens.map((token) => token.text).join(""), tokens, cut: tokens.length - 1, runs: [], part: null });
}

// What the model would have said after another token. The branches that part at one place stay side by side.
export async function runInstead(stem, was, other) {
  const part = stem.map((token) => token.id).join();
  const before = bench.get().part === part ? bench.get().runs : [{ name: "As it was", tokens: was }];
  layOut([...stem, other]);
  const done = await one(bench.get().a);
  const name = `${JSON.stringify(other.text)} instead`;
  bench.set({ part, runs: [...before.filter((each) => each.name !== name), { ...done, name, tokens: [other, ...done.tokens] }] });
}

let due = 0;

// Returns when the tokens of the edited prompt are known, or a later edit has replaced it.
export function editPrompt(text) {
  bench.set({ text, cut: null });
  clearTimeout(due);
  return new Promise((done, failed) => {
    due = setTimeout(() => edited(bench.get().tokens, text).then((tokens) => done(bench.get().text === text && bench.set({ tokens })), failed), PAUSE);
  });
}

export async function runBoth() {
  const { a, b, other } = bench.get();
  const [first, second] = await Promise.all([one(a), one(b, other)]);
  bench.set({ part: null, runs: [{ ...first, name: "Run A" }, { ...second, name: "Run B" }] });
}

async function one(setting, own = null) {
  const { text, tokens, cut } = bench.get();
  let prompt = own === null ? tokens : await edited(tokens, own);
  if (setting.effort) prompt = await edited(prompt, withEffort(own ?? text, setting.effort));
  const end = own === null && cut !== null ? cut + 1 : undefined;
  return run(prompt.slice(0, end).map((token) => token.id), setting);
}
