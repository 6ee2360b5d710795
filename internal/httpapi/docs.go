package httpapi

import (
	"bytes"
	"context"

	"github.com/gofiber/fiber/v2"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/docspage"
)

// Openapi returns the contract.
func (s *Server) Openapi(context.Context, OpenapiRequestObject) (OpenapiResponseObject, error) {
	return Openapi200ApplicationYamlResponse{Body: bytes.NewReader(asyncflow.OpenAPI), ContentLength: int64(len(asyncflow.OpenAPI))}, nil
}

// OpenapiJSON returns the contract as JSON.
func (s *Server) OpenapiJSON(context.Context, OpenapiJSONRequestObject) (OpenapiJSONResponseObject, error) {
	doc, err := yaml.YAMLToJSON(asyncflow.OpenAPI)
	return rawAnswer{contentType: fiber.MIMEApplicationJSON, body: doc}, err
}

// Docs returns the contract as a page.
func (s *Server) Docs(context.Context, DocsRequestObject) (DocsResponseObject, error) {
	page, err := s.docs()
	return rawAnswer{contentType: fiber.MIMETextHTMLCharsetUTF8, body: page}, err
}

// rawAnswer is an answer that is no JSON of a type of ours.
type rawAnswer struct {
	contentType string
	body        []byte
}

// VisitOpenapiJSONResponse writes it.
func (d rawAnswer) VisitOpenapiJSONResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, d.contentType)
	return c.Send(d.body)
}

// VisitDocsResponse writes it.
func (d rawAnswer) VisitDocsResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentSecurityPolicy, docspage.Policy)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return d.VisitOpenapiJSONResponse(c)
}
