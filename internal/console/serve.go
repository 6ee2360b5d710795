package console

import (
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// policy is the Content-Security-Policy of every answer: scripts and styles are files of this
// origin, none of them inline, and requests go to this origin only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Serve answers a request for /console or a path below it, from the address that the request counts
// for. What is not listed here is a page, whose address the program in the browser reads.
func (c *Console) Serve(ctx *fiber.Ctx, from netip.Addr) error {
	ctx.Set(fiber.HeaderContentSecurityPolicy, policy)
	ctx.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	ctx.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	ctx.Set("Cross-Origin-Opener-Policy", "same-origin")
	ctx.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch path := ctx.Path(); {
	case path == "/console/session":
		return answer(ctx, fiber.MethodGet, c.showSession)
	case path == "/console/login":
		return answer(ctx, fiber.MethodPost, c.login)
	case path == "/console/logout":
		return answer(ctx, fiber.MethodPost, c.logout)
	case path == loginPath && c.issuer != nil:
		return answer(ctx, fiber.MethodGet, c.beginLogin)
	case path == callbackPath && c.issuer != nil:
		return answer(ctx, fiber.MethodGet, func(ctx *fiber.Ctx) error { return c.endLogin(ctx, from) })
	case path == loginPath || path == callbackPath:
		return fiber.ErrNotFound
	case strings.HasPrefix(path, "/console/assets/"):
		return c.serveFile(ctx, strings.TrimPrefix(path, "/console/assets/"))
	default:
		return c.serveFile(ctx, "index.html")
	}
}

// answer calls a handler that has one method. No cache may keep its answer.
func answer(ctx *fiber.Ctx, method string, handle fiber.Handler) error {
	ctx.Set(fiber.HeaderCacheControl, "no-store")
	if ctx.Method() != method {
		ctx.Set(fiber.HeaderAllow, method)
		return fiber.ErrMethodNotAllowed
	}
	return handle(ctx)
}
