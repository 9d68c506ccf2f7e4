// Starts the page.
import { html, render } from "./vendor/preact.js";
import { App } from "./ui/app.js";

// The icon and the styles keep their addresses when that of the page changes.
for (const link of document.querySelectorAll("link")) link.setAttribute("href", link.href);
render(html`<${App} />`, document.getElementById("app"));
