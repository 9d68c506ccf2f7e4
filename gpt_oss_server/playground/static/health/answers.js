// How fast the answers came that this browser has: time to the first token, tokens per second.
import { conversations } from "../chat/store.js";
import { speedHere } from "../lib/speed.js";
import { useShared } from "../lib/state.js";

const MOST = 60;

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
    rate: steps.map(speedHere).filter((speed) => speed !== null),
  };
}
