"use strict";

// The page is to read only: it sends no calls, and asks for no token.
const readOnly = () => ({
  wrapComponents: { authorizeBtn: () => () => null, authorizeOperationBtn: () => () => null },
});

SwaggerUIBundle({
  dom_id: "#docs",
  url: "openapi.json",
  deepLinking: true,
  filter: true,
  showExtensions: true, // x-scope
  defaultModelsExpandDepth: 0,
  supportedSubmitMethods: [],
  plugins: [readOnly],
  validatorUrl: null,
});
