// How sure the model was of a token: from 0, sure, to 5. By the probability of the token, or by the entropy of what it
// chose from, in bits; what is not among the known alternatives counts as one.
export const MODES = { channel: "Channel", probability: "Probability", entropy: "Entropy" };

const SHARES = [0.9, 0.7, 0.5, 0.3, 0.1];
const BITS = [0.2, 0.6, 1, 1.6, 2.4];

function entropy({ logprob, alternatives }) {
  const known = alternatives?.length ? alternatives.map(([, each]) => Math.exp(each)) : [Math.exp(logprob)];
  const rest = Math.max(1 - known.reduce((sum, share) => sum + share, 0), 0);
  return [...known, rest].reduce((sum, share) => sum - (share > 0 ? share * Math.log2(share) : 0), 0);
}

export function heatOf(token, mode) {
  if (mode === "channel" || token.logprob === null || token.logprob === undefined) return null;
  if (mode === "entropy") return BITS.filter((bits) => entropy(token) >= bits).length;
  return SHARES.filter((share) => Math.exp(token.logprob) < share).length;
}
