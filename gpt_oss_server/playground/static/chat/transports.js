// The two ways to a response, which differ in its life. Over HTTP it runs in the background of the server: it outlives
// the page and is cancelled by its id. Over WebSocket it lives as long as its connection.
import { ApiError, call, json, stream } from "../lib/api.js";
import { socketEvents } from "../lib/socket.js";

export const TRANSPORTS = {
  http: {
    name: "HTTP, in the background",
    about: "An answer continues on the server while the page is loaded again.",
    outlives: true,
    fields: { stream: true, background: true, store: true },
    events: (body, signal) => stream("v1/responses", { method: "POST", body, signal }),
  },
  socket: {
    name: "WebSocket",
    about: "One connection for all answers. An answer ends when the page is left, and a stopped one is not stored.",
    outlives: false,
    fields: { store: true },
    events: socketEvents,
  },
};

const FORGOTTEN = "The server no longer has this answer: it was restarted, or has deleted it. What had arrived is kept; Regenerate asks again.";

export const outlives = (step) => TRANSPORTS[step.transport ?? "http"].outlives;

export const cancel = (id) => call(`v1/responses/${id}/cancel`, { method: "POST" });

// The events of a step that the page has not seen. If they are no longer kept, its end is.
export async function* unseen(step, signal) {
  const path = `v1/responses/${step.id}`;
  try {
    yield* stream(`${path}?stream=true${step.sequence >= 0 ? `&starting_after=${step.sequence}` : ""}`, { signal });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    const response = await json(path, { signal }).catch((again) => {
      throw again.status === 404 ? new ApiError(FORGOTTEN, 404, again.code) : again;
    });
    yield { type: `response.${response.status}`, response, sequence_number: step.sequence };
  }
}
