// What the server states about itself: its models, with their contexts, and its version.
import { json } from "../lib/api.js";
import { createState } from "../lib/state.js";

export const server = createState({ models: [], version: "", problem: "" });

export async function meet() {
  try {
    const [models, health] = await Promise.all([json("v1/models"), json("health").catch(() => ({}))]);
    server.set({ models: models.data, version: health.version ?? "", problem: "" });
  } catch (error) {
    server.set({ problem: error.message });
  }
}
