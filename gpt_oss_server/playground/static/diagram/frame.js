// Draws a diagram in a frame of its own, which has no origin: what a model writes reaches neither the page nor its storage.
// The page sends { text, dark, font }; the answer is { height } or { problem }.
addEventListener("message", async ({ source, data }) => {
  if (source !== parent) return;
  const { text, dark, font } = data;
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, theme: dark ? "dark" : "neutral", fontFamily: font, htmlLabels: false, flowchart: { htmlLabels: false } });
  document.body.style.margin = "0";
  try {
    const { svg } = await mermaid.render("diagram", text);
    document.body.innerHTML = svg;
    parent.postMessage({ height: Math.ceil(document.querySelector("svg").getBoundingClientRect().height) }, "*");
  } catch (error) {
    parent.postMessage({ problem: String(error.message ?? error).split("\n")[0] }, "*");
  }
});
parent.postMessage(globalThis.mermaid ? { ready: true } : { problem: "Mermaid could not be loaded" }, "*");
