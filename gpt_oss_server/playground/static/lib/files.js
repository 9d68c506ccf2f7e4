// Files of the user: saved from the page, opened in it.
export function save(name, text, kind = "application/json") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function choose({ accept = "", multiple = false } = {}) {
  return new Promise((found) => {
    const input = document.createElement("input");
    Object.assign(input, { type: "file", accept, multiple });
    input.onchange = () => found([...input.files]);
    input.oncancel = () => found([]);
    input.click();
  });
}

export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea"); // pages without TLS have no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
