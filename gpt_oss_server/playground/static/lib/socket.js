// Responses over WebSocket. A connection carries one response at a time and is kept for the next one; a response is
// stopped by closing its connection.
import { ApiError, call, key } from "./api.js";
import { connection as connectionState, hear } from "./connection.js";
import { address } from "./place.js";

// The name of a sub-protocol for the key is that of OpenAI's SDK, because a browser can send no header here.
const KEY = "openai-insecure-api-key.";
const OVER = new Set(["completed", "failed", "incomplete", "cancelled"].map((status) => `response.${status}`));
let idle = null;
let leaves = false; // the page is about to go: Firefox closes its connections first
addEventListener("beforeunload", () => (leaves = true));

export async function* socketEvents(body, signal) {
  const connection = (await taken()) ?? (await opened(signal));
  const close = () => connection.socket.close();
  signal.addEventListener("abort", close);
  try {
    connection.socket.send(JSON.stringify({ ...body, type: "response.create" }));
    for (;;) {
      const event = await connection.next();
      if (signal.aborted) throw new DOMException("The response was stopped.", "AbortError");
      if (!event && leaves) await new Promise((done) => setTimeout(done, 2000)); // `resume` tells it when the page is back
      if (!event) throw new ApiError("The WebSocket was closed before the answer ended.", 0, "unreachable");
      if (event.type === "error") throw new ApiError(event.error?.message ?? "The server refused the request.", event.status, event.error?.code);
      const ends = OVER.has(event.type);
      if (ends) keep(connection);
      yield event;
      if (ends) return;
    }
  } finally {
    signal.removeEventListener("abort", close);
    if (idle !== connection) close();
  }
}

function taken() {
  const found = idle?.socket.readyState === WebSocket.OPEN && idle.key === key.get() ? idle : null;
  if (idle && !found) idle.socket.close();
  idle = null;
  return found;
}

function keep(connection) {
  if (idle && idle !== connection) idle.socket.close();
  idle = connection;
}

async function opened(signal) {
  const connection = connect();
  const open = await connection.opening;
  if (signal.aborted) {
    connection.socket.close();
    throw new DOMException("The response was stopped.", "AbortError");
  }
  if (!open) await explain();
  return connection;
}

function connect() {
  const url = new URL(address("v1/responses"));
  url.protocol = url.protocol.replace("http", "ws");
  const [frames, given] = [[], key.get()];
  let wake = () => {};
  let closed = false;
  const socket = new WebSocket(url, protocolsFor(given));
  const opening = new Promise((found) => {
    socket.onopen = () => found(true);
    socket.onclose = () => {
      closed = true;
      found(false);
      wake();
    };
  });
  const unwatch = connectionState.watch(({ lost }) => lost && socket.close());
  socket.addEventListener("close", unwatch);
  socket.onmessage = ({ data }) => {
    hear();
    frames.push(JSON.parse(data));
    wake();
  };
  const next = async () => {
    while (!frames.length && !closed) await new Promise((found) => (wake = found));
    return frames.shift(); // undefined: the connection is closed, and all that came has been read
  };
  return { socket, opening, next, key: given };
}

function protocolsFor(given) {
  if (!given) return [];
  if (!/^[\w!#$%&'*+.^`|~-]+$/.test(given)) throw new ApiError("This key has characters that a browser cannot send over WebSocket. Choose HTTP in the setup.", 0, "key_unsendable");
  return ["responses", KEY + given];
}

// A browser does not say why a WebSocket was refused; a plain request to the same address does.
async function explain() {
  const status = await call("v1/responses").then(() => 200, (error) => (error.status === 401 ? Promise.reject(error) : error.status));
  const why = status === 405 ? "it is switched off on this server" : "a proxy between may not pass it on";
  throw new ApiError(`The WebSocket cannot be opened: ${why}. Choose HTTP in the setup.`, status, "socket_refused");
}
