package httpapi

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"sigs.k8s.io/yaml"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/docspage"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
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

// rawAnswer is an answer without a type in the contract. All callers share its body, so that an
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

// Console is the web console of a node, which is no part of the contract.
type Console interface {
	// Serve answers a request for /console or a path below it. It reads no body. from is the
	// address of the caller or, if that is an IPv6 address, its /64.
	Serve(c *fiber.Ctx, from netip.Addr) error
	// Token returns the token of the session that a call without Authorization belongs to; "" if
	// there is none. An error refuses the call. The token is not verified yet.
	Token(c *fiber.Ctx) (string, error)
}

// console passes the console's requests to it, and leads a browser at / there.
func (s *Server) console(c *fiber.Ctx) error {
	if !s.forConsole(c.Context()) {
		return c.Next()
	}
	if c.Path() == "/" {
		c.Vary(fiber.HeaderAccept)
		return c.Redirect("/console")
	}
	caller, _ := s.callerOf(c)
	return s.cfg.Console.Serve(c, listener.HolderOf(caller))
}

// forConsole reports whether a request is for the console, if there is one.
func (s *Server) forConsole(c *fasthttp.RequestCtx) bool {
	path := c.URI().PathOriginal()
	return s.cfg.Console != nil && (string(path) == "/console" ||
		bytes.HasPrefix(path, []byte("/console/")) || string(path) == "/" && wantsPage(c))
}

// wantsPage reports whether a request is for a page that a browser shows.
func wantsPage(c *fasthttp.RequestCtx) bool {
	return (c.IsGet() || c.IsHead()) &&
		strings.Contains(string(c.Request.Header.Peek(fiber.HeaderAccept)), fiber.MIMETextHTML)
}
