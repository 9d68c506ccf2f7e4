// Icons, drawn here: 24 units wide, in the colour of the text.
import { html } from "../vendor/preact.js";

const PATHS = {
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  edit: "M4 20h4L19 9l-4-4L4 16v4z",
  again: "M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5",
  copy: "M9 9h10v10H9zM5 15V5h10",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  open: "M12 16V5M7 9l5-5 5 5M5 20h14",
  tokens: "M4 6h6v5H4zM13 6h7v5h-7zM4 14h9v5H4zM16 14h4v5h-4z",
  sliders: "M4 8h10M18 8h2M4 16h2M10 16h10M16 6v4M8 14v4",
  flask: "M10 3h4M11 3v6l-5 10h12L13 9V3",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  moon: "M19 14A8 8 0 0 1 10 5a8 8 0 1 0 9 9z",
  server: "M4 5h16v6H4zM4 13h16v6H4zM8 8v.01M8 16v.01",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  keys: "M4 7h16v10H4zM8 11v.01M12 11v.01M16 11v.01M9 14h6",
  heat: "M4 20h16M6 16v-3M10 16V8M14 16v-6M18 16V4",
  beside: "M4 5h7v14H4zM13 5h7v14h-7z",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5L20 20",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

export const IconButton = ({ icon, label, onClick, ...rest }) =>
  html`<button type="button" class="icon-button" aria-label=${label} title=${label} onClick=${onClick} ...${rest}><${Icon} name=${icon} /></button>`;
