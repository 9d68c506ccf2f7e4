// Conversations in Harmony that other programs write: as JSON, as one JSON in each line, and as raw text.
import { grown } from "./stored.js";

const MESSAGE = /<\|start\|>([\s\S]*?)<\|message\|>([\s\S]*?)(?:<\|end\|>|<\|return\|>|<\|call\|>|(?=<\|start\|>)|$)/g;

// All conversations of a file, with a title each; none, if it is some other text.
export function conversationsIn(text, name) {
  if (text.trimStart().startsWith("<|start|>")) return [grown(messagesOf(text).flatMap(itemsOf), name)];
  const values = wholeOrLines(text);
  const lists = values.flatMap((value) => listsIn(value)).filter(isConversation);
  return lists.map((messages, number) => grown(messages.flatMap(itemsOf), lists.length > 1 ? `${name} ${number + 1}` : name));
}

function wholeOrLines(text) {
  try {
    return [JSON.parse(text)];
  } catch {
    const lines = text.split("\n").filter((line) => line.trim());
    try {
      return lines.map((line) => JSON.parse(line));
    } catch {
      return []; // some other text
    }
  }
}

// A conversation, a list of them, or an object that holds it as text or as messages.
function listsIn(value) {
  if (Array.isArray(value)) return isConversation(value) ? [value] : value.flatMap(listsIn);
  if (typeof value === "string") return value.startsWith("<|start|>") ? [messagesOf(value)] : [];
  if (!value || typeof value !== "object") return [];
  return listsIn(value.messages ?? value.conversation ?? value.harmony ?? value.text ?? null);
}

const isConversation = (list) => list.length > 0 && list.every((each) => each && typeof each === "object" && (each.role ?? each.author?.role) && "content" in each);

function messagesOf(text) {
  return [...text.matchAll(MESSAGE)].map(([, header, content]) => {
    const [author, channel] = header.split("<|channel|>");
    const recipient = /\bto=(\S+)/.exec(header.replaceAll(/<\|\w+\|>/g, " "))?.[1];
    return { role: author.trim().split(/\s/)[0], channel: channel?.trim().split(/[\s<]/)[0], recipient, content };
  });
}

const textOf = (content) => (Array.isArray(content) ? content.map((part) => part.text ?? JSON.stringify(part)).join("\n") : typeof content === "string" ? content : JSON.stringify(content));

let calls = 0;

function itemsOf({ role, author, channel, recipient, content, thinking }) {
  const who = role ?? author.role;
  const text = textOf(content ?? "");
  const says = (type) => ({ type: "message", role: who, content: [{ type, text }] });
  if (["user", "system", "developer"].includes(who)) return [says("input_text")];
  if (who !== "assistant") return [{ type: "function_call_output", call_id: `foreign_${calls}`, output: text }];
  const thoughts = thinking ? [{ type: "reasoning", content: [{ type: "reasoning_text", text: thinking }] }] : [];
  if (recipient && recipient !== "all") return [...thoughts, { type: "function_call", status: "completed", call_id: `foreign_${++calls}`, name: recipient.replace(/^functions\./, ""), arguments: text }];
  if (channel === "analysis") return [{ type: "reasoning", content: [{ type: "reasoning_text", text }] }];
  return [...thoughts, { ...says("output_text"), phase: channel === "commentary" ? "commentary" : undefined }];
}
