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
