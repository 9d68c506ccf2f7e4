// Whether the server can be reached. While an answer streams, a silence of seconds is looked into, because a connection
// can be gone without a sign; a stream that hangs is then ended, so that its reader opens another.
import { address } from "./place.js";
import { createState } from "./state.js";

const BEAT = 2000; // milliseconds
const SILENCE = { streaming: 2000, idle: 15_000 };
const TOO_LONG = 4000;
const MOST_SLOW = 2; // answers in a row that take too long: a busy machine may be slow once

export const connection = createState({ lost: false });

const streams = new Set(); // AbortControllers
let heard = Date.now();
let asking = false;
let slow = 0;

export function hear() {
  heard = Date.now();
  slow = 0;
  if (connection.get().lost) connection.set({ lost: false });
}

export function lose() {
  if (!connection.get().lost) connection.set({ lost: true });
  for (const each of streams) each.abort();
}

// The signal of a stream that ends when the connection is lost, once it is `ready`: another can go on from there. `done`
// when it has ended by itself.
export function streaming(signal) {
  const own = new AbortController();
  const end = () => own.abort();
  signal?.addEventListener("abort", end);
  return {
    signal: own.signal,
    ready: () => streams.add(own),
    done: () => {
      streams.delete(own);
      signal?.removeEventListener("abort", end);
    },
  };
}

export async function probe() {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch(address("live"), { cache: "no-store", signal: AbortSignal.timeout(TOO_LONG) });
    if (answer.status < 500) hear();
    else lose();
  } catch (error) {
    if (error.name !== "TimeoutError" || ++slow >= MOST_SLOW) lose();
  } finally {
    asking = false;
  }
}

// Returns once the server can be reached, or after `pause` if it could be all the time.
export async function reachable(pause, signal) {
  await new Promise((found) => setTimeout(found, pause));
  while (connection.get().lost && !signal.aborted) {
    await new Promise((found) => {
      const end = connection.watch(() => (end(), found()));
      signal.addEventListener("abort", () => (end(), found()), { once: true });
    });
  }
  signal.throwIfAborted();
}

setInterval(() => {
  const quiet = Date.now() - heard;
  if (connection.get().lost || (!document.hidden && quiet > (streams.size ? SILENCE.streaming : SILENCE.idle))) probe();
}, BEAT);
addEventListener("online", probe);
addEventListener("offline", lose);
