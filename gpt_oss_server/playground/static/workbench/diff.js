// Which tokens of two runs are not shared: the longest common subsequence, within what one page can compute.
const MOST = 2000;

export function compared(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const [left, right] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const [ownA, ownB] = [new Set(), new Set()];
  const shared = left.length * right.length <= MOST * MOST ? common(left, right) : [];
  const [inA, inB] = [new Set(shared.map(([i]) => i)), new Set(shared.map(([, j]) => j))];
  left.forEach((_, i) => inA.has(i) || ownA.add(start + i));
  right.forEach((_, j) => inB.has(j) || ownB.add(start + j));
  return { ownA, ownB, first: start === a.length && start === b.length ? null : start };
}

function common(a, b) {
  const wide = b.length + 1;
  const best = new Uint16Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
    }
  }
  const found = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) found.push([i++, j++]);
    else if (best[(i + 1) * wide + j] >= best[i * wide + j + 1]) i++;
    else j++;
  }
  return found;
}
