// A diagram in Mermaid's language: drawn in a frame of its own, with its source beside it.
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { address } from "./place.js";

const TALLEST = 900; // pixels; a taller one scrolls
const SILENT = 2000; // milliseconds in which a frame that has loaded says so

export function Diagram({ text, children }) {
  const place = useRef();
  const [state, setState] = useState({});
  const [shows, setShows] = useState(false);
  const heard = useRef(false);
  const onLoad = () => setTimeout(() => !heard.current && setState({ problem: "its frame could not be loaded" }), SILENT);
  useEffect(() => {
    const send = () => {
      const { colorScheme, fontFamily } = getComputedStyle(document.body);
      const dark = colorScheme === "dark" || (colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches);
      place.current.contentWindow.postMessage({ text, dark, font: fontFamily }, "*"); // the frame has no origin to name
    };
    const hear = ({ source, data }) => {
      if (source !== place.current?.contentWindow) return;
      heard.current = true;
      if (data.ready) send();
      else if (data.problem) setState({ problem: data.problem });
      else if (data.height) {
        place.current.style.height = `${Math.min(data.height, TALLEST)}px`;
        setState({ drawn: true });
      }
    };
    addEventListener("message", hear);
    return () => removeEventListener("message", hear);
  }, [text]);
  if (state.problem) return html`${children}<p class="faint">This diagram cannot be drawn: ${state.problem}</p>`;
  return html`<figure class="diagram" aria-busy=${!state.drawn}>
    <iframe ref=${place} title="A diagram" sandbox="allow-scripts" onLoad=${onLoad} src=${address("web/diagram/frame.html")}></iframe>
    <button type="button" class="quiet" aria-expanded=${shows} onClick=${() => setShows(!shows)}>Source</button>
    ${shows && children}</figure>`;
}
