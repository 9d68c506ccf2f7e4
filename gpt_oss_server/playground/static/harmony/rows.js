// A trace as rows of known height, so that only those in sight are drawn: titles, lines of tokens, slips, tools,
// and the library's reading.
import { speedOf } from "../lib/speed.js";
import { isSpecial } from "../lib/token.js";

const [RETURN, CHANNEL, START, END, MESSAGE, CALL] = [200002, 200005, 200006, 200007, 200008, 200012];
const LONG = 40; // tokens of a message that is folded
export const HEIGHTS = { response: 40, title: 36, folded: 28, tokens: 25, slip: 94, tool: 56, same: 30, differs: 30, reading: 26, warning: 44 };

const decoder = new TextDecoder();

export function textOf(trace, id) {
  const found = trace.vocabulary[id];
  return Array.isArray(found) ? decoder.decode(new Uint8Array(found)) : (found ?? "\uFFFD");
}

// Rows for lines of `width` pixels, with letters of `letter` pixels. `opened` says which messages of prompts are unfolded.
export function rowsOf(trace, width, letter, opened = () => true) {
  const rows = [];
  const packer = { trace, rows, width, letter, opened, widths: new Map() };
  for (const response of trace.responses) addResponse(packer, response);
  let top = 0;
  for (const row of rows) {
    row.top = top;
    top += HEIGHTS[row.kind];
  }
  return { rows, height: top };
}

function addResponse(packer, found) {
  const { rows } = packer;
  rows.push({ kind: "response", id: found.response.id, status: found.response.status });
  const first = found.generations[0];
  const cached = first?.cached ?? 0;
  rows.push({ kind: "title", role: "prompt", text: "Prompt", note: `${count(found.prompt.length)}${cached ? `, ${cached} from the cache` : ""}` });
  messages(packer, placed(framed(found.prompt, { cached }), found, 0), found.response.id);
  let before = found.prompt.length;
  found.generations.forEach((generation, number) => {
    addTools(packer, found, number);
    if (number && generation.given.length) {
      rows.push({ kind: "title", role: "prompt", text: "Given", note: `${count(generation.given.length)}: what the tools returned` });
      lines(packer, placed(framed(generation.given, {}), found, before), new Map());
    }
    before += generation.given.length;
    addGeneration(packer, generation, number, (tokens) => placed(tokens, found, before));
    before += generation.tokens.length;
  });
  addTools(packer, found, found.generations.length);
  for (const each of found.warnings) rows.push({ kind: "warning", text: each.detail });
}

// A prompt's long messages can be folded to a line, but for the last one.
function messages(packer, tokens, id) {
  const starts = tokens.flatMap((token, at) => (token.id === START ? [at] : []));
  const parts = starts.map((start, number) => tokens.slice(start, starts[number + 1]));
  const last = parts.findLastIndex((part) => part.some((token) => token.id === MESSAGE));
  if (starts[0] !== 0) lines(packer, tokens.slice(0, starts[0]), new Map());
  parts.forEach((part, number) => {
    if (part.length < LONG || number === last) return lines(packer, part, new Map());
    const key = `${id}:${number}`;
    const open = packer.opened(key);
    paint(packer.trace, part);
    const text = part.map((token) => textOf(packer.trace, token.id)).join("");
    const role = part.at(-2).channel;
    packer.rows.push({ kind: "folded", key, open, role, count: count(part.length), text: text.slice(text.indexOf("<|message|>") + 11, 300).replaceAll(/\s+/g, " ") });
    return open && lines(packer, part, new Map());
  });
}

// The messages that the model wrote, with the tokens of their texts.
export function written(trace) {
  return trace.responses.flatMap((found) => {
    let before = found.prompt.length;
    return found.generations.flatMap((generation) => {
      before += generation.given.length;
      const tokens = placed(framed(generation.tokens, { generation }), found, before);
      before += generation.tokens.length;
      for (const token of tokens) token.text = textOf(trace, token.id);
      return generation.messages.map((message) => ({ ...message, tokens: tokens.slice(message.start, message.end).filter((token) => token.kind === "text") }));
    });
  });
}

function addTools({ rows }, found, number) {
  for (const run of found.tools) if (run.generation === number) rows.push({ kind: "tool", run });
}

// The tokens with their place in all that the model saw and wrote for a response.
function placed(tokens, response, before) {
  for (const token of tokens) Object.assign(token, { response, place: before + token.at });
  return tokens;
}

// All tokens up to one of them, with their texts.
export function upTo(trace, { response, place }) {
  const all = response.generations.reduce((found, each) => found.concat(each.given, each.tokens), response.prompt);
  return named(trace, all.slice(0, place + 1));
}

// What the model wrote from a token on, until its completion ended.
export function onFrom(trace, { response, place }) {
  let end = response.prompt.length;
  for (const { given, tokens } of response.generations) {
    const start = end + given.length;
    end = start + tokens.length;
    if (place < end) return named(trace, tokens.slice(Math.max(0, place - start)));
  }
  return [];
}

const named = (trace, ids) => ids.map((id) => ({ id, text: textOf(trace, id) }));

function addGeneration(packer, generation, number, place) {
  const { rows } = packer;
  rows.push({ kind: "title", role: "completion", text: `Completion ${number + 1}`, note: notes(generation, number) });
  const slips = new Map();
  for (const slip of generation.slips) {
    const became = generation.messages.find((each) => slip.at >= each.start && slip.at < each.end) ?? generation.messages.at(-1);
    slips.set(slip.at, [...(slips.get(slip.at) ?? []), { ...slip, became }]);
  }
  lines(packer, place(framed(generation.tokens, { generation })), slips);
  addReading(rows, generation);
}

function addReading(rows, { library, messages }) {
  if (library.agrees) {
    rows.push({ kind: "same" });
    return;
  }
  rows.push({ kind: "differs", error: library.error, at: library.stopped_at });
  const longest = Math.max(messages.length, library.messages.length);
  for (let at = 0; at < longest; at++) {
    const [own, other] = [messages[at], library.messages[at]];
    rows.push({ kind: "reading", own, other, differs: !own || !other || own.channel !== other.channel || own.recipient !== other.recipient || own.text !== other.text });
  }
}

const count = (number) => `${number.toLocaleString()} token${number === 1 ? "" : "s"}`;

function notes(generation, number) {
  const parts = [count(generation.tokens.length)];
  if (number && generation.cached) parts.push(`${generation.cached} of its prompt from the cache`);
  const { began, first_token: first, ended } = generation;
  if (first !== null) parts.push(`first token after ${(first - began).toFixed(2)} s`);
  const speed = ended !== null && first !== null && speedOf(generation.tokens.length, first, ended);
  if (speed) parts.push(`${speed.toFixed(0)} per second in the engine`);
  return parts.join(" · ");
}

// Each token with its place in the frame of messages: special, header or text, its channel and its fate.
function framed(ids, { cached = 0, generation }) {
  const state = { mode: generation ? "header" : "text", author: generation ? "assistant" : "", channel: "", wants: "" };
  let message = 0;
  return ids.map((id, at) => {
    const token = { id, at, kind: state.mode, cached: at < cached, channel: state.channel || state.author };
    if (isSpecial(id)) {
      token.kind = "special";
      follow(state, id);
      token.channel = state.channel || state.author;
    } else if (state.mode === "header") {
      token.kind = "header";
      state.pending = id;
    }
    if (generation) {
      const { messages } = generation;
      while (message < messages.length - 1 && at >= messages[message].end) message++;
      const own = messages[message];
      if (own && at >= own.start) Object.assign(token, { channel: own.recipient ? "call" : own.channel, dropped: own.dropped_next_turn });
      token.logprob = generation.logprobs?.[at] ?? null;
      token.alternatives = generation.alternatives[at];
    } else if (token.kind !== "special") {
      token.header = state.mode === "header";
    }
    return token;
  });
}

function follow(state, id) {
  if (id === START) Object.assign(state, { mode: "header", channel: "", author: "" });
  else if (id === CHANNEL) state.mode = "header";
  else if (id === MESSAGE) state.mode = "text";
  else if ([END, RETURN, CALL].includes(id)) state.mode = "between";
}

// Lines of tokens: a line ends where it is full, at a line feed, and before each message.
function lines(packer, tokens, slips) {
  const { trace, rows, width, letter } = packer;
  paint(trace, tokens);
  let line = [];
  let used = 0;
  const flush = () => {
    if (line.length) rows.push({ kind: "tokens", tokens: line });
    line = [];
    used = 0;
  };
  for (const token of tokens) {
    token.text = textOf(trace, token.id);
    const wide = widthOf(packer, token) * letter + 4;
    if (token.id === START || used + wide > width) flush();
    const found = slips.get(token.at);
    if (found) token.slip = found[0].kind;
    line.push(token);
    used += wide;
    if (found) {
      flush();
      for (const slip of found) rows.push({ kind: "slip", slip });
    } else if (token.text.endsWith("\n")) flush();
  }
  flush();
}

// In a prompt, the colour follows from the author and channel that the header spells.
function paint(trace, tokens) {
  let [author, channel, header, marked] = ["", "", "", false];
  for (const token of tokens) {
    if (token.id === START) [author, channel, header, marked] = ["", "", "", false];
    else if (token.id === CHANNEL) marked = true;
    else if (!isSpecial(token.id) && token.header) {
      header += textOf(trace, token.id);
      if (!marked) author = header.trim().split(/[\s<]/)[0];
      else channel += textOf(trace, token.id);
    }
    if (token.header !== undefined && !token.channel) {
      const known = ["system", "developer", "user"].includes(author) ? author : author === "assistant" ? channel.trim().split(/\s/)[0] : author ? "tool" : "";
      token.channel = known;
    }
  }
}

function widthOf({ widths, trace }, token) {
  if (!widths.has(token.id)) {
    let wide = 0;
    for (const sign of shownText(textOf(trace, token.id))) wide += sign.codePointAt(0) > 0x2e7f ? 2 : 1;
    widths.set(token.id, wide);
  }
  return widths.get(token.id);
}

export const shownText = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
