// Server-sent events of a body: the JSON of each, as it arrives. `heard` is called for any sign of life.
export async function* eventsOf(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      heard();
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = dataOf(block);
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
    ended = true;
  } finally {
    if (!ended) await reader.cancel().catch(() => {});
  }
}

function dataOf(block) {
  return block
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(line[5] === " " ? 6 : 5))
    .join("\n");
}
