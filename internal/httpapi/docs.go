package httpapi

import (
	"context"
	"sync"

	"github.com/gofiber/fiber/v2"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/docspage"
)

// Openapi returns the contract.
func (s *Server) Openapi(context.Context, OpenapiRequestObject) (OpenapiResponseObject, error) {
	return rawAnswer{contentType: "application/yaml", body: asyncflow.OpenAPI}, nil
}

// openapiJSON is the contract as JSON. It is converted once: anyone may ask for it.
var openapiJSON = sync.OnceValues(func() ([]byte, error) {
	return yaml.YAMLToJSON(asyncflow.OpenAPI)
})

// OpenapiJSON returns the contract as JSON.
func (s *Server) OpenapiJSON(
	context.Context, OpenapiJSONRequestObject,
) (OpenapiJSONResponseObject, error) {
	doc, err := openapiJSON()
	return rawAnswer{contentType: fiber.MIMEApplicationJSON, body: doc}, err
}

// Docs returns the page of the contract.
func (s *Server) Docs(context.Context, DocsRequestObject) (DocsResponseObject, error) {
	return rawAnswer{contentType: fiber.MIMETextHTMLCharsetUTF8, body: docspage.Page}, nil
}

// rawAnswer is an answer that has no type in the contract. All callers share its body, so that an
// answer that nobody reads takes no memory of its own.
type rawAnswer struct {
	contentType string
	body        []byte
}

// VisitOpenapiResponse writes the contract.
func (a rawAnswer) VisitOpenapiResponse(c *fiber.Ctx) error { return a.write(c) }

// VisitOpenapiJSONResponse writes the contract.
func (a rawAnswer) VisitOpenapiJSONResponse(c *fiber.Ctx) error { return a.write(c) }

func (a rawAnswer) write(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, a.contentType)
	c.Locals(sharedBody, true)
	c.Response().SetBodyRaw(a.body)
	return nil
}

// VisitDocsResponse writes the page.
func (a rawAnswer) VisitDocsResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentSecurityPolicy, docspage.Policy)
	return a.write(c)
}

// DocsFile returns a file that the page loads.
func (s *Server) DocsFile(
	_ context.Context, r DocsFileRequestObject,
) (DocsFileResponseObject, error) {
	return docsFile(docspage.Files[string(r.File)]), nil
}

// docsFile is a file of the page as an answer.
type docsFile docspage.File

// VisitDocsFileResponse writes the file, compressed if the caller accepts that.
func (f docsFile) VisitDocsFileResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, f.ContentType)
	c.Locals(sharedBody, true)
	c.Set(fiber.HeaderCacheControl, "max-age=3600")
	c.Vary(fiber.HeaderAcceptEncoding)
	if f.Gzip != nil && c.Request().Header.HasAcceptEncoding("gzip") {
		c.Set(fiber.HeaderContentEncoding, "gzip")
		c.Response().SetBodyRaw(f.Gzip)
		return nil
	}
	c.Response().SetBodyRaw(docspage.File(f).Plain())
	return nil
}
