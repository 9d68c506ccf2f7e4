// What was opened from files: many conversations and traces at once, of which one is looked at at a time. It stays until
// the page is left; a conversation that is looked at is kept as all others are.
import { createState } from "../lib/state.js";
import { address } from "../lib/place.js";
import { conversations } from "./store.js";
import { lastStep, messageText } from "./tree.js";

const PLACE = "#files";

export const ALL = { query: "", having: "", tool: "" };
export const collection = createState({ entries: [], shown: false, filter: ALL });

// `entries` are { name, conversation } or { name, trace }; without any, those that were opened before are shown again.
export function showCollection(entries = null) {
  history.pushState(null, "", address(`./${PLACE}`));
  collection.set({ ...(entries && { entries: entries.map((entry) => ({ ...entry, about: aboutOf(entry) })), filter: ALL }), shown: true });
  conversations.set({ open: null });
}

// The entries that the filter leaves.
export function fitting({ entries, filter: { query, having, tool } }) {
  const wanted = query.trim().toLowerCase();
  return entries.filter(({ name, about }) => (!wanted || about.text.includes(wanted) || name.toLowerCase().includes(wanted)) && (!having || about.has[having]) && (!tool || about.tools.includes(tool)));
}

addEventListener("popstate", () => collection.set({ shown: location.hash === PLACE && collection.get().entries.length > 0 }));

// Whatever else is opened or begun takes its place.
let fresh = conversations.get().fresh;
conversations.watch((state) => {
  const leaves = state.open !== null || state.fresh !== fresh;
  fresh = state.fresh;
  if (!leaves || !collection.get().shown) return;
  collection.set({ shown: false });
  if (location.hash === PLACE) history.pushState(null, "", address("./"));
});

const aboutOf = ({ conversation, trace }) => (trace ? ofTrace(trace) : ofConversation(conversation));

function ofConversation({ nodes }) {
  const all = Object.values(nodes);
  const items = all.flatMap((node) => (node.steps ?? []).flatMap((step) => step.items));
  const texts = [...all.map((node) => node.text ?? ""), ...items.map((item) => messageText(item) || item.arguments || "")];
  const answers = items.filter((item) => item.type === "message" && item.phase !== "commentary");
  const last = all.findLast((node) => node.role === "assistant");
  return {
    count: all.filter((node) => node.role === "user").length + items.length,
    question: all.find((node) => node.role === "user" && !node.author)?.text ?? texts[0] ?? "",
    answer: last ? lastStep(last).items.filter((item) => item.type === "message").map(messageText).join(" ") : "",
    tools: [...new Set(items.filter((item) => item.type === "function_call").map((item) => item.name))],
    has: {
      reasoning: items.some((item) => item.type === "reasoning"),
      calls: items.some((item) => item.type === "function_call"),
      preambles: items.some((item) => item.phase === "commentary"),
      instructions: all.some((node) => node.author),
      unanswered: answers.length === 0,
    },
    text: texts.join("\n").toLowerCase(),
  };
}

function ofTrace({ responses }) {
  const messages = responses.flatMap((each) => each.generations.flatMap((one) => one.messages));
  const texts = messages.map((each) => each.text);
  const { input } = responses.at(-1).request;
  const asked = (typeof input === "string" ? input : (input ?? []).flatMap((item) => (typeof item.content === "string" ? item.content : (item.content ?? []).map((part) => part.text ?? ""))).join(" "));
  return {
    count: messages.length,
    question: asked,
    answer: messages.filter((each) => each.channel === "final").at(-1)?.text ?? "",
    tools: [...new Set(messages.map((each) => each.recipient).filter(Boolean).map((name) => name.replace(/^functions\./, "")))],
    has: {
      reasoning: messages.some((each) => each.channel === "analysis" && !each.recipient),
      calls: messages.some((each) => each.recipient),
      preambles: messages.some((each) => each.channel === "commentary" && !each.recipient),
      instructions: responses.some((each) => each.request.instructions),
      slips: responses.some((each) => each.generations.some((one) => one.slips.length)),
      unanswered: !messages.some((each) => each.channel === "final"),
    },
    text: [asked, ...texts].join("\n").toLowerCase(),
  };
}
