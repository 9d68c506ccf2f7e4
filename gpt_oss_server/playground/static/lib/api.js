// The server's public API.
import { hear, lose, streaming } from "./connection.js";
import { address } from "./place.js";
import { createState } from "./state.js";
import { read, write, remove } from "./saved.js";
import { eventsOf } from "./sse.js";

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
  set: (value) => {
    if (value) write("key", value, sessionStorage);
    else remove("key", sessionStorage);
    access.set({ asks: false, held: Boolean(value) });
  },
};

// Whether the server asks for another key, with its reason, and whether the page has one.
export const access = createState({ asks: false, why: "", held: Boolean(key.get()) });

// What the server's own sentence says to programs, for a reader of this page.
const KEYLESS = "Enter a key of this server; its operator can give you one.";

export const baseUrl = () => address("v1");

export async function call(path, { method = "GET", body, form, signal, headers: further } = {}) {
  const headers = { ...further };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  const given = { method, headers, signal, body: form ?? (body === undefined ? undefined : JSON.stringify(body)) };
  let answer;
  try {
    answer = await fetch(address(path), given);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lose();
    throw new ApiError("The server cannot be reached. Is it still running?", 0, "unreachable");
  }
  hear();
  if (answer.ok) return answer;
  let told = {};
  try {
    told = (await answer.json()).error ?? {};
  } catch {
    // a proxy's page: the status is all there is
  }
  const keyless = answer.status === 401 && !headers.authorization;
  const message = keyless ? KEYLESS : told.message ?? `The server answered ${answer.status}.`;
  if (answer.status === 401) access.set({ asks: true, why: message, held: Boolean(key.get()) });
  throw new ApiError(message, answer.status, told.code);
}

export const json = async (path, options) => (await call(path, options)).json();

export async function* stream(path, options) {
  const { signal, ready, done } = streaming(options.signal);
  try {
    if (options.method !== "POST") ready();
    const answer = await call(path, { ...options, signal });
    for await (const event of eventsOf(answer.body, hear)) {
      ready();
      yield event;
    }
  } catch (error) {
    if (error.name !== "AbortError" || options.signal?.aborted) throw error;
    throw new ApiError("The connection to the server is lost.", 0, "unreachable");
  } finally {
    done();
  }
}

// All entries of a list that comes in pages, oldest first.
export async function listed(path) {
  const found = [];
  const asked = `${path}${path.includes("?") ? "&" : "?"}limit=100&order=asc`;
  for (let after = ""; ; ) {
    const { data, has_more: more, last_id: last } = await json(`${asked}${after && `&after=${encodeURIComponent(after)}`}`);
    found.push(...data);
    if (!more || !data.length) return found;
    after = last;
  }
}

// The server keeps the file; requests and vector stores name it by the id that is returned.
export async function upload(file, purpose) {
  const form = new FormData();
  form.append("purpose", purpose);
  form.append("file", file, file.name);
  return (await json("v1/files", { method: "POST", form })).id;
}

export const traceOf = (id, signal, whole = false) =>
  json(`v1/responses/${encodeURIComponent(id)}/trace${whole ? "?conversation=true" : ""}`, { signal });
