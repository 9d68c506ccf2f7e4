// What the browser keeps: values as JSON in its storage. A full or forbidden storage loses nothing but the copy.
const PREFIX = "gpt-oss-server:";

export function read(name, otherwise, storage = localStorage) {
  try {
    const text = storage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

// Returns false if the browser refused, so that the caller can say so.
export function write(name, value, storage = localStorage) {
  try {
    storage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function remove(name, storage = localStorage) {
  storage.removeItem(PREFIX + name);
}

// Calls `act` with the name and the value that another tab has written, or null that it has removed.
export function watch(beginning, act) {
  addEventListener("storage", ({ key, newValue }) => {
    if (key?.startsWith(PREFIX + beginning)) act(key.slice(PREFIX.length), newValue && JSON.parse(newValue));
  });
}

export function names(beginning) {
  const found = [];
  for (let at = 0; at < localStorage.length; at++) {
    const name = localStorage.key(at);
    if (name.startsWith(PREFIX + beginning)) found.push(name.slice(PREFIX.length));
  }
  return found;
}

// The name of this tab, which a reload keeps.
export const TAB = read("tab", null, sessionStorage) ?? crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
write("tab", TAB, sessionStorage);
