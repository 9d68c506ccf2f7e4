// What the server states about itself: its models, with their contexts, and whether it wants a key.
import { createState } from "../lib/state.js";
import { json } from "../lib/api.js";

export const server = createState({ models: [], version: "", problem: "", needsKey: false });

addEventListener("key-refused", () => server.set({ needsKey: true }));

export async function meet() {
  try {
    const [models, health] = await Promise.all([json("v1/models"), json("health").catch(() => ({}))]);
    server.set({ models: models.data, version: health.version ?? "", problem: "", needsKey: false });
  } catch (error) {
    server.set({ problem: error.message, needsKey: error.status === 401 || error.status === 403 });
  }
}
