// The server's public API. Addresses are relative, so that the page works behind a path prefix too.
import { read, write, remove } from "./saved.js";
import { eventsOf } from "./sse.js";

const base = new URL("./", document.baseURI);

export class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The key stays in the session's storage: it is gone when the tab closes.
export const key = {
  get: () => read("key", "", sessionStorage),
  set: (value) => (value ? write("key", value, sessionStorage) : remove("key", sessionStorage)),
};

export const baseUrl = () => new URL("v1", base).href;

export async function call(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  const given = { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(new URL(path, base), given);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is it still running?", 0, "unreachable");
  }
  if (answer.ok) return answer;
  let told = {};
  try {
    told = (await answer.json()).error ?? {};
  } catch {
    // a proxy's page: the status is all there is
  }
  if (answer.status === 401) dispatchEvent(new Event("key-refused")); // also if it was right until now
  throw new ApiError(told.message ?? `The server answered ${answer.status}.`, answer.status, told.code);
}

export const json = async (path, options) => (await call(path, options)).json();

export async function* stream(path, options) {
  const answer = await call(path, options);
  yield* eventsOf(answer.body);
}

export const traceOf = (id, signal, whole = false) =>
  json(`v1/responses/${encodeURIComponent(id)}/trace${whole ? "?conversation=true" : ""}`, { signal });
