// What /health reports, read again and again: numbers of now, and how fast counts grow.
import { json } from "../lib/api.js";

export const EVERY = 1000;
const MOST = 120;

const flattened = (found, before = "") =>
  Object.entries(found ?? {}).reduce((all, [name, value]) => {
    if (typeof value === "number") all[before + name] = value;
    else if (value && typeof value === "object") Object.assign(all, flattened(value, `${before}${name}.`));
    return all;
  }, {});

export async function sample(signal) {
  const began = performance.now();
  const health = await json("health?steps=true", { signal });
  return { at: began, took: performance.now() - began, values: flattened(health.counters), steps: health.steps ?? [] };
}

// The series with one more sample.
export const joined = (samples, next) => [...samples, next].slice(-MOST);

export const levels = (samples, name) => samples.map((each) => each.values[name] ?? 0);

// The growth of a count for each second, between samples.
export function rates(samples, name) {
  return samples.slice(1).map((each, at) => {
    const grown = (each.values[name] ?? 0) - (samples[at].values[name] ?? 0);
    return Math.max(grown, 0) / ((each.at - samples[at].at) / 1000);
  });
}
