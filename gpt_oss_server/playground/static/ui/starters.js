// What one can begin with. Each works with the model that is served and with what the server offers; each is run in a test.
import { html } from "../vendor/preact.js";
import { useShared } from "../lib/state.js";
import { isOffered, offers, options } from "../chat/options.js";
import { send } from "../chat/runner.js";
import { WEATHER } from "./tools.js";

const SUM = { text: "What is 17 times 23?", needs: "python" };
const CALL = { text: "What is the weather in Paris?", calls: true };
const GENERAL = [SUM, { text: "Plot a sine wave.", needs: "python" }, { text: "Derive the quadratic formula." }, { text: "Write a haiku about tokens." }];
// The embedded model knows little: these it answers well.
const DEMO = [{ text: "Who are you?" }, SUM, CALL, { text: "What is the capital of France?" }, { text: "Tell me a joke." }];
const RESULT = '{"temperature": 18, "sky": "clear"}';

function begin({ text, needs, calls }) {
  const set = {};
  if (needs) set[needs] = true;
  const { functions } = options.get();
  if (calls && !functions.some((each) => each.name === WEATHER.name)) {
    set.functions = [...functions, { ...WEATHER, answers: [{ when: "", result: RESULT }] }];
  }
  if (calls) set.calls = true;
  options.set(set);
  send(text);
}

export function Starters({ model }) {
  useShared(offers);
  const fitting = (model?.is_demo ? DEMO : GENERAL).filter(({ needs }) => !needs || isOffered(needs));
  return html`<div class="ideas">${fitting.map((each) => html`<button type="button" onClick=${() => begin(each)}>${each.text}${each.calls && html` <span class="faint">with a function</span>`}</button>`)}</div>`;
}
