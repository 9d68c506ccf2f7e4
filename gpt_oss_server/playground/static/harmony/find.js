// A search over the tokens: a text may span several of them.
export function found(rows, query) {
  const wanted = query.toLowerCase();
  if (!wanted) return [];
  const tokens = rows.flatMap((row) => (row.tokens ?? []).map((token) => ({ token, top: row.top })));
  const starts = [];
  let text = "";
  for (const { token } of tokens) {
    starts.push(text.length);
    text += token.text.toLowerCase();
  }
  const hits = [];
  for (let at = text.indexOf(wanted), index = 0; at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    while (starts[index + 1] <= at) index++;
    let end = index;
    while (end + 1 < starts.length && starts[end + 1] < at + wanted.length) end++;
    hits.push({ top: tokens[index].top, tokens: tokens.slice(index, end + 1).map((each) => each.token) });
  }
  return hits;
}
