// What every view of tokens shares: which ids are special, and a log-probability in words.
const FIRST_SPECIAL = 199998;

export const isSpecial = (id) => id >= FIRST_SPECIAL;

export function percent(logprob) {
  const share = Math.exp(logprob) * 100;
  return share >= 0.1 || share === 0 ? `${share.toFixed(1)} %` : "< 0.1 %";
}
