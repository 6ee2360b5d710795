"use strict";

SwaggerUIBundle({
  dom_id: "#docs",
  url: "openapi.json",
  deepLinking: true,
  filter: true,
  showExtensions: true, // x-scope
  defaultModelsExpandDepth: 0,
  supportedSubmitMethods: [], // to read only: the page asks for no token
  validatorUrl: null,
});
