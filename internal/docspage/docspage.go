// Package docspage is a page to read openapi.json with Swagger UI. The page and the files that it
// loads are embedded; it makes no request to anywhere else.
package docspage

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"sync"
)

//go:generate ./vendor.sh

//go:embed assets
var assets embed.FS

// Policy is the Content-Security-Policy of the page: scripts and styles of its own origin, none of
// them inline, and requests to its own origin only. Swagger UI keeps its icons in data URLs.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page is the page, in HTML. It expects the files below docs/, and openapi.json beside itself.
var Page = read("index.html")

// File is a file that the page loads.
type File struct {
	ContentType string
	Gzip        []byte // nil: the file isn't compressed
	plain       func() []byte
}

// Plain returns the file without compression.
func (f File) Plain() []byte { return f.plain() }

// Files are the files that the page loads, and their licence, by name.
var Files = map[string]File{
	"index.js":             plain("index.js", "text/javascript; charset=utf-8"),
	"swagger-ui-bundle.js": compressed("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
	"swagger-ui.css":       compressed("swagger-ui.css", "text/css; charset=utf-8"),
	"LICENSE.txt":          compressed("LICENSE.txt", "text/plain; charset=utf-8"),
}

func plain(name, contentType string) File {
	doc := read(name)
	return File{ContentType: contentType, plain: func() []byte { return doc }}
}

// compressed returns a file that is embedded compressed. Few callers don't accept gzip, so it is
// decompressed when the first one asks for it.
func compressed(name, contentType string) File {
	doc := read(name + ".gz")
	return File{ContentType: contentType, Gzip: doc, plain: sync.OnceValue(func() []byte {
		return must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(doc)))))
	})}
}

func read(name string) []byte { return must(assets.ReadFile("assets/" + name)) }

// must returns v. The files are part of the program, so an error is a fault of the program.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
