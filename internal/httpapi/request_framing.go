package httpapi

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// checkFraming refuses a header that two servers in a row may read differently, which
// would let what one takes for a body be the next request for the other (RFC 9112,
// sections 2.2, 5.2 and 6.3). The server itself refuses most of it before it comes here;
// these are the forms that it still reads.
func checkFraming(h *fasthttp.RequestHeader) error {
	refuse := func(why string) error { return asyncflow.InvalidField("header", "%s", why) }
	version := string(h.Protocol())
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return refuse("is of " + version + "; this server speaks HTTP/1.1")
	}
	hasLength, hasCoding := false, false
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
		case len(name) == 0 || !isToken(name): // also a line that goes on from the one before
			return refuse("has a line that begins with no name")
		case len(name) == len("Content-Length") && strings.EqualFold(string(name), "Content-Length"):
			hasLength = true
		case len(name) == len("Transfer-Encoding") && strings.EqualFold(string(name), "Transfer-Encoding"):
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

// isToken tells whether a text is a name of a header (RFC 9110, section 5.6.2).
func isToken(text []byte) bool {
	for _, c := range text {
		if !tokenBytes[c] {
			return false
		}
	}
	return true
}

var tokenBytes = func() (known [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		known[c] = true
	}
	return known
}()
