package callbacks

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/asyncflow/asyncflow/internal/signing"
)

// headers are those of a request, in the order in which they are written.
type headers []signing.Header

// headersOf returns the headers of a request: those in its context, or its own.
func headersOf(req *http.Request) headers {
	if r := requestContextOf(req.Context()); r != nil {
		return r.headers
	}
	var h headers
	for name, values := range req.Header {
		for _, value := range values {
			h = append(h, signing.Header{Name: name, Value: value})
		}
	}
	return h
}

// set adds a header, in the place of one of that name.
func (h *headers) set(name, value string) {
	if i := h.index(name); i >= 0 {
		(*h)[i].Value = value
		return
	}
	*h = append(*h, signing.Header{Name: name, Value: value})
}

// index returns where the header of a name is, or -1.
func (h headers) index(name string) int {
	return slices.IndexFunc(h, func(one signing.Header) bool { return strings.EqualFold(one.Name, name) })
}

// check checks headers that may come from elsewhere, such as the token of a login: those of an
// endpoint's settings, and those that a request has itself.
func (h headers) check() error {
	for _, one := range h {
		switch {
		case !httpguts.ValidHeaderFieldName(one.Name):
			return fmt.Errorf("invalid header field name %q", one.Name)
		case framing(one.Name):
			return fmt.Errorf("the header %s is not for callers to set", one.Name)
		case !httpguts.ValidHeaderFieldValue(one.Value):
			return fmt.Errorf("invalid header field value for %q", one.Name) // which may be a secret
		}
	}
	return nil
}

// framing tells whether a header says where a request ends, or whose it is: those are
// writeRequest's. Users can't set them anyway.
func framing(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		return true
	}
	return false
}
