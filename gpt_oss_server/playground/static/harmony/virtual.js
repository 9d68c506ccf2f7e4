// A list of rows of known heights, of which only those in sight are in the page.
import { Minimap } from "./minimap.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";

const MORE = 300; // pixels above and below that are drawn in advance

export function Virtual({ rows, height, heights, draw, follows, goal, onResize, ...rest }) {
  const place = useRef();
  const [seen, setSeen] = useState({ top: 0, size: 800 });
  const atEnd = useRef(true);
  useLayoutEffect(() => onResize(place.current.clientWidth), []);
  useEffect(() => {
    const watch = new ResizeObserver(() => {
      const { clientHeight, clientWidth, scrollTop } = place.current;
      setSeen({ top: scrollTop, size: clientHeight });
      onResize(clientWidth);
    });
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (follows && atEnd.current) place.current.scrollTop = place.current.scrollHeight;
  }, [height, follows]);
  useLayoutEffect(() => {
    if (goal) place.current.scrollTop = goal.top;
  }, [goal]);
  const onScroll = ({ target }) => {
    atEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 80;
    setSeen({ top: target.scrollTop, size: target.clientHeight });
  };
  const first = Math.max(find(rows, seen.top - MORE) - 1, 0);
  const last = find(rows, seen.top + seen.size + MORE);
  return html`<div class="frame"><div class="virtual" ref=${place} onScroll=${onScroll} tabindex="0" ...${rest}>
    <div class="whole" style=${{ height: `${height}px` }}>
      ${rows.slice(first, last).map((row, at) => html`<div class=${`row ${row.kind}`} key=${first + at} style=${{ top: `${row.top}px`, height: `${heights[row.kind]}px` }}>${draw(row, first + at)}</div>`)}
    </div>
  </div><${Minimap} rows=${rows} height=${height} seen=${seen} go=${(top) => (place.current.scrollTop = top)} /></div>`;
}

// The number of rows that begin above `top`.
function find(rows, top) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top < top) low = middle + 1;
    else high = middle;
  }
  return low;
}
