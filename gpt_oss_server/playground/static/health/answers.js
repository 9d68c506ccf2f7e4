// How fast the answers came that this browser has: time to the first token, tokens per second.
import { conversations } from "../chat/store.js";
import { useShared } from "../lib/state.js";

const MOST = 60;
const SHORTEST = 0.02; // seconds: a rate over less is noise

export function useAnswers() {
  const all = useShared(conversations, (state) => state.all);
  const steps = Object.values(all)
    .flatMap((conversation) => Object.values(conversation.nodes))
    .flatMap((node) => node.steps ?? [])
    .filter((step) => step.first && step.ended && step.usage)
    .sort((a, b) => a.began - b.began)
    .slice(-MOST);
  return {
    first: steps.map((step) => step.first - step.began),
    rate: steps.filter((step) => step.ended - step.first > SHORTEST * 1000).map((step) => (step.usage.output_tokens / (step.ended - step.first)) * 1000),
  };
}
