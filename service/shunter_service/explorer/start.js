// No validator: it would send the description to a site elsewhere.
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#explorer",
  validatorUrl: null,
  deepLinking: true,
  displayRequestDuration: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
});
