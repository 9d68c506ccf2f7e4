// All rows of the tokens view in one narrow strip, in the colours of their channels; a click goes there.
import { html, useEffect, useRef } from "../vendor/preact.js";

const WIDTH = 12;
const COLOURS = ["analysis", "final", "call", "commentary", "tool", "user", "system", "developer"];

export function Minimap({ rows, height, seen, go }) {
  const place = useRef();
  useEffect(() => {
    const { current: canvas } = place;
    const context = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`)]));
    canvas.height = seen.size;
    context.clearRect(0, 0, WIDTH, canvas.height);
    const scale = Math.min(canvas.height / Math.max(height, 1), 1);
    rows.forEach((row, at) => {
      const channel = row.tokens?.find((token) => token.kind !== "special")?.channel ?? row.role ?? (row.kind === "tool" ? "tool" : "");
      const colour = row.kind === "slip" ? style.getPropertyValue("--bad") : colours[channel];
      if (!colour) return;
      context.fillStyle = colour;
      context.fillRect(2, row.top * scale, WIDTH - 4, Math.max(((rows[at + 1]?.top ?? height) - row.top) * scale - 0.4, 0.6));
    });
  }, [rows, height, seen.size]);
  const share = (pixels) => `${(100 * pixels) / Math.max(height, seen.size)}%`;
  const jump = (event) => go((event.offsetY / seen.size) * Math.max(height, seen.size) - seen.size / 2);
  return html`<div class="minimap" aria-hidden="true" onClick=${jump}><canvas ref=${place} width=${WIDTH}></canvas>
    <i style=${{ top: share(seen.top), height: share(seen.size) }}></i></div>`;
}
