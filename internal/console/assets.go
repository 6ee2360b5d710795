package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/web"
)

// file is a file of the console. Its tags name its content: each form has one of its own.
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
