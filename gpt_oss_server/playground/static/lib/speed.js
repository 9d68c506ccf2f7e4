// The speed of an answer, the one definition for all places that show it: tokens per second after the first token.
const SHORTEST = 0.02; // seconds: a speed over less is noise

// From the seconds at which the first token and the last one came; null if they are too close.
export function speedOf(tokens, first, ended) {
  const seconds = ended - first;
  return tokens > 1 && seconds > SHORTEST ? (tokens - 1) / seconds : null;
}

// As this browser received a response, tools that ran meanwhile included.
export const speedHere = (step) => (step.first && step.ended && step.usage ? speedOf(step.usage.output_tokens, step.first / 1000, step.ended / 1000) : null);
