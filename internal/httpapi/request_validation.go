package httpapi

import (
	"context"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/store"
)

// maxBodyDepth bounds the nesting of a body. Documents that are stored have a lower limit: its
// error names their field.
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
	if len(body) > 0 && !isJSON(c.Get(fiber.HeaderContentType)) {
		return asyncflow.InvalidField("Content-Type", "must be application/json")
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
	if o.ID == "submitTask" { // in a batch, each task has its own result
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
			return asyncflow.InvalidField(name, "is not supported: the change would be made in any case")
		}
	}
	if o.ID != "submitTask" && len(c.Request().Header.Peek(idempotencyHeader)) > 0 {
		return asyncflow.InvalidField(idempotencyHeader,
			"is taken by POST /v1/tasks only; in a batch, each task has a key of its own")
	}
	return nil
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
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

// takesHeader reports whether the contract has a header among the parameters of an operation.
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
