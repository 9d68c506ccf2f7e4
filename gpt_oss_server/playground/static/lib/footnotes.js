// Footnotes: `[^name]` in the text, `[^name]: …` anywhere. They are numbered in the order of the text, and come last.
const REFERENCE = /^\[\^([^\]\s]+)\](?!:)/;
const NOTE = /^\[\^([^\]\s]+)\]:[ \t]*([^\n]*(?:\n+(?: {2,}|\t)[^\n]*)*)(?:\n+|$)/;

let numbers = new Map(); // of the message that is drawn: name → number

export const numbered = (given, draw) => {
  numbers = given;
  return draw();
};

// Extensions of the reader of Markdown.
export const FOOTNOTES = [
  {
    name: "footnote",
    level: "block",
    start: (text) => /(?:^|\n)\[\^/.exec(text)?.index,
    tokenizer(text) {
      const found = NOTE.exec(text);
      return found ? { type: "footnote", raw: found[0], name: found[1], text: found[2].replace(/\n(?: {2,4}|\t)/g, "\n") } : undefined;
    },
    renderer: () => "",
  },
  {
    name: "footnoteReference",
    level: "inline",
    start: (text) => text.indexOf("[^"),
    tokenizer(text) {
      const found = REFERENCE.exec(text);
      return found && numbers.has(found[1]) ? { type: "footnoteReference", raw: found[0], name: found[1] } : undefined;
    },
    renderer: ({ name }) => `<sup><a href="#note-${numbers.get(name)}">${numbers.get(name)}</a></sup>`,
  },
];

// The notes of a text that it refers to: number and text.
export function notesOf(text, blocks) {
  const notes = new Map(blocks.filter((block) => block.type === "footnote").map((block) => [block.name, block.text]));
  const found = new Map();
  if (!notes.size) return { numbers: found, notes: [] };
  for (const [, name] of text.matchAll(/\[\^([^\]\s]+)\](?!:)/g)) if (notes.has(name) && !found.has(name)) found.set(name, found.size + 1);
  return { numbers: found, notes: [...found].map(([name, number]) => ({ number, text: notes.get(name) })) };
}

// Goes from a number to its note and back, within the message; the page's address stays.
export function onFootnote(event) {
  const link = event.target.closest?.('a[href^="#note-"], a[href^="#from-"]');
  if (!link) return;
  event.preventDefault();
  const [, way, number] = /#(\w+)-(\d+)/.exec(link.getAttribute("href"));
  const target = event.currentTarget.querySelector(way === "note" ? `[data-note="${number}"]` : `a[href="#note-${number}"]`);
  target?.scrollIntoView({ block: "nearest" });
  target?.focus();
}
