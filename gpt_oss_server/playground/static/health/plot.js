// A small line, with its latest value in words.
import { html } from "../vendor/preact.js";

export function Plot({ title, values }) {
  const latest = values.at(-1) ?? 0;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${((at / Math.max(values.length - 1, 1)) * 100).toFixed(2)},${(36 - (value / most) * 34).toFixed(2)}`);
  return html`<section class="plot-card"><h3 class="faint">${title}</h3><strong>${latest.toLocaleString(undefined, { maximumFractionDigits: 1 })}</strong>
    <svg viewBox="0 0 100 38" preserveAspectRatio="none" role="img" aria-label=${`${title}: ${latest.toFixed(1)}, at most ${most.toFixed(1)}`}>
      ${points.length > 1 && html`<path class="fill" d=${`M0,37 L${points.join(" L")} L100,37 Z`} /><path d=${`M${points.join(" L")}`} />`}</svg></section>`;
}
