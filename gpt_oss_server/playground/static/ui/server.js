// What the server states about itself: its models, with their contexts, and its version.
import { call, json } from "../lib/api.js";
import { createState, useShared } from "../lib/state.js";
import { connection } from "../lib/connection.js";
import { offers, options } from "../chat/options.js";

export const server = createState({ models: [], version: "", problem: "" });

const SOON = 1000; // milliseconds
connection.watch(({ lost }) => lost || meet()); // it may be another server by now

/** The model that answers next: the chosen one, or the first. */
export function useModel() {
  const { models } = useShared(server);
  const chosen = useShared(options, (o) => o.model);
  return models.find((each) => each.id === chosen) ?? models[0];
}

// A model may have tools of its own.
function learnTools() {
  const { models } = server.get();
  const { model } = options.get();
  const types = (models.find((each) => each.id === model) ?? models[0])?.tools ?? null;
  if (types?.join() !== offers.get().types?.join()) offers.set({ types });
}
options.watch(learnTools);

export async function meet() {
  try {
    const [models, health] = await Promise.all([json("v1/models"), json("health").catch(() => ({}))]);
    server.set({ models: models.data, version: health.version ?? "", problem: "" });
    learnTools();
    if (models.data.length && !offers.get().types) setTimeout(meet, SOON); // it still prepares them
  } catch (error) {
    server.set({ problem: error.message });
  }
}

/** Loads or unloads a model, and learns the state of all. */
export async function change(action, model) {
  try {
    await call(`models/${action}`, { method: "POST", body: { model } });
  } finally {
    await meet();
  }
}
