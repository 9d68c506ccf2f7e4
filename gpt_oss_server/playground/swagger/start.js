// Shows this server's own description of its API. A file, because the page allows no script inside itself.
window.ui = SwaggerUIBundle({
  url: document.body.dataset.document,
  dom_id: "#reference",
  deepLinking: true,
  validatorUrl: null,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
});
