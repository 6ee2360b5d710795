package httpapi

import (
	"bytes"
	"context"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/store"
)

// maxBodyDepth bounds the nesting of a body. There is a lower limit for documents that are stored:
// its error names their field.
const maxBodyDepth = 1000

// validate checks a request with its body against the contract.
func (s *Server) validate(c *fiber.Ctx, o *contract.Operation, values map[string]string) error {
	// A small compressed body could become huge.
	if encoding := c.Get(fiber.HeaderContentEncoding); encoding != "" {
		return asyncflow.InvalidField("Content-Encoding",
			"is %q; bodies are taken as they are, not compressed", encoding)
	}
	if err := checkConditions(c, o); err != nil {
		return err
	}
	if err := readPrecondition(c, o); err != nil {
		return err
	}
	wanted := o.Route.Operation.RequestBody
	body := bodyOf(c) // without the copy that c.Body makes
	if wanted == nil && len(body) > 0 && string(body) != "{}" {
		return errUnwantedBody
	}
	if n := asyncflow.Depth(body); n > maxBodyDepth {
		return asyncflow.InvalidField("body", "is nested %d deep; the limit is %d", n, maxBodyDepth)
	}
	if media := o.Media(); len(body) > 0 && !isMedia(c.Get(fiber.HeaderContentType), media) {
		return asyncflow.InvalidField("Content-Type", "must be %s", media)
	}
	if wanted != nil && len(body) == 0 {
		if wanted.Value.Required {
			return asyncflow.InvalidField("body", "is required")
		}
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		c.Request().SetBodyString("{}")
		body = c.Request().Body()
	}
	if !o.ByHand {
		return s.check(c, o, values, body)
	}
	if _, err := o.ReadQuery(c.Request().URI().QueryString()); err != nil {
		return err
	}
	if o.ID == "submitTask" { // in a batch, each task gets its own result
		return s.contract.CheckRetry(body)
	}
	return nil
}

// conditions are the headers by which a caller makes a change depend on what was before.
var conditions = []string{fiber.HeaderIfMatch, fiber.HeaderIfNoneMatch,
	fiber.HeaderIfUnmodifiedSince}

// checkConditions refuses a change with a header that would be ignored: its caller relies on being
// safe from doing it twice, or from undoing another's change. Workers' reports are safe by their
// tokens.
func checkConditions(c *fiber.Ctx, o *contract.Operation) error {
	if c.Method() == fiber.MethodGet || o.Access != contract.AccessToken {
		return nil
	}
	for _, name := range conditions {
		if len(c.Request().Header.PeekAll(name)) > 0 && !takesHeader(o, name) {
			return asyncflow.InvalidField(name,
				"is not supported: the change would be made in any case")
		}
	}
	if o.ID != "submitTask" && o.ID != "sendSignal" && o.ID != "rerunTask" &&
		len(c.Request().Header.Peek(idempotencyHeader)) > 0 {
		return asyncflow.InvalidField(idempotencyHeader,
			"is taken by POST /v1/tasks, POST /v1/signals and POST /v1/tasks/{id}/rerun only; in "+
				"a batch, each task has a key of its own")
	}
	return nil
}

// isMedia reports whether a Content-Type names a media type.
func isMedia(contentType, want string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), want)
}

func (s *Server) check(
	c *fiber.Ctx, o *contract.Operation, values map[string]string, body []byte,
) error {
	return s.contract.Check(c.UserContext(), contract.Request{
		Operation: o,
		Values:    values,
		Path:      c.Path(),
		Query:     c.Request().URI().QueryString(),
		Body:      body,
	})
}

// checkBody returns what the contract doesn't allow of a request, if it knows the request.
func (s *Server) checkBody(c *fiber.Ctx) error {
	if o, values := s.contract.Find(c.Method(), c.Path()); o != nil {
		return s.check(c, o, values, bodyOf(c))
	}
	return nil
}

// takesHeader reports whether the contract lists a header among the parameters of an operation.
func takesHeader(o *contract.Operation, name string) bool {
	return o.Route.Operation.Parameters.GetByInAndName("header", name) != nil
}

type preconditionKey struct{}

// readPrecondition reads If-Match and If-None-Match of a call that takes them.
func readPrecondition(c *fiber.Ctx, o *contract.Operation) (err error) {
	var p store.Precondition
	if takesHeader(o, fiber.HeaderIfMatch) {
		if p.Match, err = readETags(c); err != nil {
			return err
		}
	}
	if takesHeader(o, fiber.HeaderIfNoneMatch) {
		for _, value := range c.Request().Header.PeekAll(fiber.HeaderIfNoneMatch) {
			if p.New = string(value) == store.AnyETag; !p.New {
				return asyncflow.InvalidField(fiber.HeaderIfNoneMatch,
					"must be *: the change is made only if there is nothing yet")
			}
		}
	}
	if p.New && p.Match != nil {
		return asyncflow.InvalidField(fiber.HeaderIfMatch, "excludes If-None-Match")
	}
	c.SetUserContext(context.WithValue(c.UserContext(), preconditionKey{}, p))
	return nil
}

var etagForm = regexp.MustCompile(`^(W/)?"[\x21\x23-\x7e]*"$`)

// readETags returns the ETags in If-Match; nil: there is no such header. A weak one matches
// nothing (RFC 9110, section 13.1.1).
func readETags(c *fiber.Ctx) (etags []string, err error) {
	for _, line := range c.Request().Header.PeekAll(fiber.HeaderIfMatch) {
		for etag := range strings.SplitSeq(string(line), ",") {
			etag = strings.Trim(etag, " \t")
			if etag != store.AnyETag && !etagForm.MatchString(etag) {
				return nil, asyncflow.InvalidField(fiber.HeaderIfMatch,
					`must be * or ETags of earlier answers, such as "Zm9vYmFyZm9vYmFy"`)
			}
			etags = append(etags, etag)
		}
	}
	return etags, nil
}

// withPrecondition returns the context for the change that a call's precondition is for.
func withPrecondition(ctx context.Context) context.Context {
	p, _ := ctx.Value(preconditionKey{}).(store.Precondition)
	return store.WithPrecondition(ctx, p)
}

// checkFraming refuses a header that two servers in a row may read differently. One of them could
// then take for the next request what the other takes for a body (RFC 9112, sections 2.2, 5.2 and
// 6.3). Of two Authorization headers, one may check the first and the other the second. fasthttp
// itself refuses most such headers; these are the forms that it still accepts.
func checkFraming(h *fasthttp.RequestHeader) error {
	refuse := func(why string) error { return asyncflow.InvalidField("header", "%s", why) }
	version := string(h.Protocol())
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return refuse("is of " + version + "; this server speaks HTTP/1.1")
	}
	hasLength, hasCoding, hasToken := false, false, false
	for line := range bytes.Lines(h.RawHeaders()) {
		line, crlf := bytes.CutSuffix(line, []byte("\r\n"))
		if !crlf {
			return refuse("has a line that doesn't end in CR LF")
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == 0 || !isToken(name): // also a line that continues the one before
			return refuse("has a line that begins with no name")
		case isHeader(name, "Content-Length"):
			hasLength = true
		case isHeader(name, fasthttp.HeaderAuthorization):
			if hasToken {
				return refuse("has two Authorization lines")
			}
			hasToken = true
		case isHeader(name, "Transfer-Encoding"):
			hasCoding = true
			if !strings.EqualFold(string(bytes.Trim(value, " \t")), "chunked") {
				return refuse("has a Transfer-Encoding other than chunked")
			}
		}
	}
	switch {
	case hasCoding && hasLength:
		return refuse("has both Content-Length and Transfer-Encoding")
	case hasCoding && version == "HTTP/1.0":
		return refuse("has a Transfer-Encoding, which HTTP/1.0 doesn't know")
	}
	return nil
}

// isHeader reports whether a name is that of a header, which consists of ASCII letters only. The
// lengths are compared too: EqualFold alone takes some other letters for ASCII ones.
func isHeader(name []byte, header string) bool {
	return len(name) == len(header) && strings.EqualFold(string(name), header)
}

// isToken reports whether a text may be the name of a header (RFC 9110, section 5.6.2).
func isToken(text []byte) bool {
	for _, c := range text {
		if !tokenBytes[c] {
			return false
		}
	}
	return true
}

var tokenBytes = func() (known [256]bool) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789" + letters) {
		known[c] = true
	}
	return known
}()
