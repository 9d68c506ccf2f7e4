// Whether an answer lacks a tool that the server offers and that was off: by what a model writes that has none.
import { isOffered, isOn, TOOLS } from "./options.js";
import { lastStep, textOf } from "./tree.js";

const LONGEST = 1500; // characters: a long answer is one
const LACKS = /\bturn (?:it|this|them|that)? ?on\b|\b(?:do(?:es)? not|don['’]t|cannot|can['’]t|unable to|no|without|not able to|would need)\b.{0,60}?\b(?:access|tool|ability|brows\w*|execut\w*|run|search|look up|retrieve|real-time|live|internet)\b/i;
const NAMES = {
  python: /\bpython\b|\bcode interpreter\b|\b(?:run|execut\w+) (?:the |this |any )?code\b/i,
  browser: /\bbrows\w+\b|\binternet\b|\breal-time\b|\bsearch the web\b|\bweb search\b|\blive (?:data|information)\b|\bup-to-date\b/i,
};

export function lacking(node, options) {
  const text = lastStep(node)?.status === "completed" ? textOf(node) : "";
  if (!text || text.length > LONGEST || !LACKS.test(text)) return null;
  return Object.keys(NAMES).find((name) => NAMES[name].test(text) && isOffered(name) && !isOn(options, name)) ?? null;
}

export const nameOf = (name) => TOOLS[name].name;
