package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"net/netip"
	"path"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/web"
)

// file is a file of the console. Its tags name its content: each form gets one of its own.
type file struct {
	contentType string
	plain, gzip []byte // gzip is nil if it would not be shorter
	tag         string
	gzipTag     string
}

// contentTypes are the types of the files, by the end of their names.
var contentTypes = map[string]string{
	".html":  "text/html; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".woff2": "font/woff2",
	".txt":   "text/plain; charset=utf-8",
}

// bundled returns the files that are part of the program, by name. They are compressed once in the
// life of the process.
var bundled = sync.OnceValues(func() (map[string]file, error) {
	files := map[string]file{}
	entries, err := fs.ReadDir(web.Assets, "assets")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(web.Assets, "assets/"+entry.Name())
		if err != nil {
			return nil, err
		}
		if files[entry.Name()], err = newFile(entry.Name(), text); err != nil {
			return nil, err
		}
	}
	return files, nil
})

func newFile(name string, text []byte) (file, error) {
	sum := sha256.Sum256(text)
	hash := base64.RawURLEncoding.EncodeToString(sum[:18])
	f := file{contentType: contentTypes[path.Ext(name)], plain: text, tag: `"` + hash + `"`,
		gzipTag: `"` + hash + `-gzip"`}
	if f.contentType == "" {
		f.contentType = fiber.MIMEOctetStream
	}
	var short bytes.Buffer
	w, err := gzip.NewWriterLevel(&short, gzip.BestCompression)
	if err != nil {
		return f, err
	}
	if _, err := w.Write(text); err != nil {
		return f, err
	}
	if err := w.Close(); err != nil {
		return f, err
	}
	if short.Len() < len(text) {
		f.gzip = short.Bytes()
	}
	return f, nil
}

// serveFile answers with a file. A browser asks each time whether its copy is still good, so that
// pages of two versions never mix for longer than a load.
func (c *Console) serveFile(ctx *fiber.Ctx, name string) error {
	if m := ctx.Method(); m != fiber.MethodGet && m != fiber.MethodHead {
		ctx.Set(fiber.HeaderAllow, "GET, HEAD")
		return fiber.ErrMethodNotAllowed
	}
	f, ok := c.files[name]
	if !ok {
		return fiber.ErrNotFound
	}
	ctx.Set(fiber.HeaderCacheControl, "no-cache")
	ctx.Vary(fiber.HeaderAcceptEncoding)
	body, tag := f.plain, f.tag
	if f.gzip != nil && ctx.Request().Header.HasAcceptEncoding("gzip") {
		body, tag = f.gzip, f.gzipTag
	}
	ctx.Set(fiber.HeaderETag, tag)
	if hasTag(ctx.Get(fiber.HeaderIfNoneMatch), tag) {
		ctx.Status(fiber.StatusNotModified)
		return nil
	}
	ctx.Set(fiber.HeaderContentType, f.contentType)
	if tag == f.gzipTag {
		ctx.Set(fiber.HeaderContentEncoding, "gzip")
	}
	ctx.Response().SetBodyRaw(body)
	return nil
}

// hasTag reports whether a value of If-None-Match lists a tag (RFC 9110, section 13.1.2).
func hasTag(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == tag || one == "*" {
			return true
		}
	}
	return false
}

// policy is the Content-Security-Policy of every answer: scripts and styles are files of this
// origin, none of them inline, and requests go to this origin only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors " +
	"'none'"

// Serve answers a request for /console or a path below it, from the address that the request counts
// for. Any other path is a page: the program in the browser reads the address.
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
		return answer(ctx, fiber.MethodGet, func(ctx *fiber.Ctx) error {
			return c.endLogin(ctx, from)
		})
	case path == loginPath || path == callbackPath:
		return fiber.ErrNotFound
	case strings.HasPrefix(path, "/console/assets/"):
		return c.serveFile(ctx, strings.TrimPrefix(path, "/console/assets/"))
	default:
		return c.serveFile(ctx, "index.html")
	}
}

// answer calls a handler of one method. No cache may keep its answer.
func answer(ctx *fiber.Ctx, method string, handle fiber.Handler) error {
	ctx.Set(fiber.HeaderCacheControl, "no-store")
	if ctx.Method() != method {
		ctx.Set(fiber.HeaderAllow, method)
		return fiber.ErrMethodNotAllowed
	}
	return handle(ctx)
}
