// The sources of an answer: links, and the lines of each page as the model read them.
import { html, useState } from "../vendor/preact.js";
import { traceOf } from "../lib/api.js";

const MARKER = /【(\d+)†L(\d+)(?:-L(\d+))?】/g;
const host = (address) => {
  try {
    return new URL(address).host || address;
  } catch {
    return address;
  }
};
export const isWeb = (address) => /^https?:/i.test(address ?? "");

export function Sources({ cited, response }) {
  const unique = [...new Map(cited.map((each) => [each.url, each])).values()];
  return html`<ol class="sources" aria-label="Sources">${unique.map((each) => html`<${Source} key=${each.url} source=${each} response=${response} />`)}</ol>`;
}

function Source({ source, response }) {
  const [read, setRead] = useState(null);
  const title = source.title || host(source.url);
  const show = async () => {
    try {
      setRead(read ? null : linesOf(await traceOf(response), source.url));
    } catch (error) {
      setRead({ problem: error.message });
    }
  };
  return html`<li>
    <div>${isWeb(source.url) ? html`<a href=${source.url} target="_blank" rel="noopener noreferrer">${title}</a>` : html`<strong>${title}</strong>`} <span class="faint">${host(source.url)}</span>
      <button type="button" class="quiet" aria-expanded=${Boolean(read)} onClick=${show}>The quoted lines</button></div>
    ${read?.problem && html`<p class="bad">${read.problem}</p>`}
    ${read?.lines && html`<pre class="output quoted" tabindex="0">${read.lines.map((line) => html`<span class=${line.quoted ? "hit" : ""}>${line.text || " "}</span>`)}</pre>`}
  </li>`;
}

// The page that the address names, as the tool returned it. The model cites it by its cursor and lines.
function linesOf(trace, url) {
  const [response] = trace.responses;
  const outputs = response.tools.map((run) => run.output);
  const page = outputs.findLast((output) => output.includes(`URL: ${url}`)) ?? outputs.findLast((output) => output.includes(url));
  if (!page) return { problem: "The page is not in this response: an earlier one read it." };
  const cursor = /^\[(\d+)\]/.exec(page)?.[1];
  const quoted = new Set();
  const texts = response.generations.flatMap((each) => each.messages).map((message) => message.text);
  for (const [, number, first, last] of texts.join("\n").matchAll(MARKER)) {
    if (number === cursor) for (let line = Number(first); line <= Number(last ?? first); line++) quoted.add(line);
  }
  const lines = page.split("\n").map((text) => {
    const number = /^L(\d+):/.exec(text)?.[1];
    return { text, quoted: number !== undefined && quoted.has(Number(number)) };
  });
  return { lines };
}
