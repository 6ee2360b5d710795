package httpapi

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

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

// isHeader reports whether a name is that of a header, which has ASCII letters only. The lengths
// are compared too: EqualFold alone takes some other letters for ASCII ones.
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
