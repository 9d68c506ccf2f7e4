// Starts the page.
import { html, render } from "./vendor/preact.js";
import { App } from "./ui/app.js";

render(html`<${App} />`, document.getElementById("app"));
