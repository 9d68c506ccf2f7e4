// Colours code: strings, comments, numbers and keywords of the languages that models write most.
const WORDS = {
  python:
    "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield None True False self match case",
  javascript:
    "async await break case catch class const continue default delete do else export extends finally for from function if import in instanceof let new null of return static super switch this throw true false try typeof undefined var void while yield interface type enum implements",
  c: "auto bool break case catch char class const constexpr continue default delete do double else enum extern false float for goto if inline int long namespace new nullptr private protected public return short signed sizeof static struct switch template this throw true try typedef union unsigned using virtual void volatile while",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  go: "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false string int error bool",
  java: "abstract boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new null package private protected public return short static super switch synchronized this throw throws true false try void volatile while",
  sql: "select from where and or not insert into values update set delete create table drop alter join left right inner outer on group by order having limit offset as distinct union null is in like between case when then else end primary key",
  shell: "if then else elif fi for while do done case esac function in return local export echo cd set exit",
  json: "true false null",
};
const OTHER = {
  py: "python", js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript",
  cpp: "c", "c++": "c", h: "c", cs: "java", csharp: "java", kotlin: "java", rs: "rust", golang: "go",
  bash: "shell", sh: "shell", zsh: "shell", console: "shell",
};
const HASH = new Set(["python", "shell"]);

function pattern(language) {
  const comment = language === "sql" ? "--[^\\n]*" : HASH.has(language) ? "#[^\\n]*" : "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)";
  const text =
    language === "python"
      ? `"""[\\s\\S]*?(?:"""|$)|'''[\\s\\S]*?(?:'''|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?`
      : `"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?`;
  return new RegExp(`(?<c>${comment})|(?<s>${text})|(?<n>\\b\\d[\\w.]*)|(?<w>[A-Za-z_$][\\w$]*)(?<f>\\s*\\()?`, "g");
}

const known = new Map();

function rulesOf(language) {
  const name = OTHER[language] ?? language;
  if (!(name in WORDS)) return null;
  if (!known.has(name)) {
    const insensitive = name === "sql";
    known.set(name, { pattern: pattern(name), words: new Set(WORDS[name].split(" ")), insensitive });
  }
  return known.get(name);
}

// Pieces of the code: [class or "", text].
export function pieces(code, language) {
  const rules = rulesOf((language || "").toLowerCase());
  if (!rules || code.length > 50_000) return [["", code]];
  const found = [];
  let at = 0;
  for (const match of code.matchAll(rules.pattern)) {
    const { c, s, n, w, f } = match.groups;
    const word = rules.insensitive ? w?.toLowerCase() : w;
    const kind = c ? "comment" : s ? "string" : n ? "number" : rules.words.has(word) ? "keyword" : f ? "function" : "";
    if (!kind) continue;
    const text = w ?? match[0];
    if (match.index > at) found.push(["", code.slice(at, match.index)]);
    found.push([kind, text]);
    at = match.index + text.length;
  }
  found.push(["", code.slice(at)]);
  return found;
}
