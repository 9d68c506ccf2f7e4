// Reads a request as people paste it: JSON of any API, a curl command, or a call of the Python SDKs.
export function parseRequest(text) {
  const given = text.trim();
  if (!given) throw new Error("Paste a request first.");
  if (given.startsWith("{")) return asJson(given);
  if (/\bcurl\b/.test(given)) return fromCurl(given);
  if (/\.create\s*\(/.test(given)) return fromPython(given);
  return { input: given };
}

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The request is no valid JSON: ${error.message}`);
  }
}

function fromCurl(text) {
  const found = /(?:-d|--data(?:-raw|-binary)?|--json)[\s=]+(?:'((?:[^']|'\\'')*)'|\$'((?:\\[\s\S]|[^'\\])*)'|"((?:\\.|[^"\\])*)")/.exec(text);
  if (!found) throw new Error("The curl command has no -d with a body.");
  if (found[2] !== undefined) return asJson(unescaped(found[2])); // as browsers copy a request
  return asJson(found[1] !== undefined ? found[1].replaceAll("'\\''", "'") : found[3].replace(/\\(["\\$`])/g, "$1"));
}

// The keyword arguments of the call, of which each value is a Python literal.
function fromPython(text) {
  const start = text.indexOf("(", text.search(/\.create\s*\(/));
  const reader = new Literals(text, start + 1);
  const body = {};
  for (;;) {
    reader.skip();
    if (reader.take(")")) return body;
    const name = reader.word();
    reader.skip();
    if (!name || !reader.take("=")) throw new Error(`The Python call is not understood at “${reader.rest()}”.`);
    body[name] = reader.value();
    reader.skip();
    reader.take(",");
  }
}

class Literals {
  constructor(text, at) {
    this.text = text;
    this.at = at;
  }

  rest() {
    return this.text.slice(this.at, this.at + 24);
  }

  skip() {
    const found = /^(?:\s|#[^\n]*)*/.exec(this.text.slice(this.at));
    this.at += found[0].length;
  }

  take(sign) {
    if (this.text[this.at] !== sign) return false;
    this.at += 1;
    return true;
  }

  match(pattern) {
    const found = pattern.exec(this.text.slice(this.at));
    if (found) this.at += found[0].length;
    return found;
  }

  word() {
    return this.match(/^[A-Za-z_]\w*/)?.[0];
  }

  value() {
    this.skip();
    if (this.take("[")) return this.list("]");
    if (this.take("(")) return this.list(")");
    if (this.take("{")) return this.dictionary();
    const texts = [];
    for (let found; (found = this.match(/^([rR]?)("""([\s\S]*?)"""|'''([\s\S]*?)'''|"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)')/)); this.skip()) {
      const inner = found[3] ?? found[4] ?? found[5] ?? found[6];
      texts.push(found[1] ? inner : unescaped(inner));
    }
    if (texts.length) return texts.join("");
    const number = this.match(/^-?\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?/);
    if (number) return Number(number[0].replaceAll("_", ""));
    const word = this.word();
    if (word === "True" || word === "False") return word === "True";
    if (word === "None") return null;
    throw new Error(`Only literal values can be read; “${word ?? this.rest()}” is none.`);
  }

  list(end) {
    const found = [];
    for (this.skip(); !this.take(end); this.skip()) {
      found.push(this.value());
      this.skip();
      this.take(",");
    }
    return found;
  }

  dictionary() {
    const found = {};
    for (this.skip(); !this.take("}"); this.skip()) {
      const name = this.value();
      this.skip();
      if (!this.take(":")) throw new Error(`A colon is missing at “${this.rest()}”.`);
      found[name] = this.value();
      this.skip();
      this.take(",");
    }
    return found;
  }
}

const ESCAPES = { n: "\n", t: "\t", r: "\r", "\n": "" };
const unescaped = (text) =>
  text.replace(/\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\s\S]))/g, (_, u, x, one) => (u || x ? String.fromCharCode(parseInt(u ?? x, 16)) : (ESCAPES[one] ?? one)));
