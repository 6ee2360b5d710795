package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

const (
	// headerLimit bounds the header of a request, in bytes.
	headerLimit = 16 << 10

	// strangersBody bounds the body of a request whose token isn't good, in bytes. Such a
	// one is read before the request is refused.
	strangersBody = 64 << 10

	// bodyHeadroom is how far over the limit a body is still read, so that its sender
	// hears of the limit. A larger one has its connection closed under it.
	bodyHeadroom = 16 << 20

	// maxBodyDepth bounds the nesting of a body. What is stored has a lower limit, of
	// which its field is told.
	maxBodyDepth = 1000
)

// allowance tells, once the header of a request is there, how large its body may be. The
// whole body has its memory before its first byte came: strangers must not be given
// megabytes for a header.
func (s *Server) allowance(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	most := s.cfg.MaxBody + bodyHeadroom
	if n := h.ContentLength(); (n < 0 || n > strangersBody) && !s.knows(h) {
		most = strangersBody
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: most}
}

// knows tells whether a request has a token that is good for where it goes.
func (s *Server) knows(h *fasthttp.RequestHeader) bool {
	path, _, _ := strings.Cut(string(h.RequestURI()), "?")
	o, values := s.contract.find(string(h.Method()), path)
	if o == nil || o.access == accessOpen {
		return false
	}
	token, err := auth.Bearer(string(h.Peek("Authorization")))
	if err != nil {
		return false
	}
	if o.access != accessCompletion {
		_, err = s.cfg.Verifier.Verify(context.Background(), token, time.Now()) // which has a bound of its own
		return err == nil
	}
	id, err := asyncflow.ParseTaskID(values["id"])
	if err == nil {
		_, err = s.cfg.Keys.VerifyCompletion(token, id)
	}
	return err == nil
}
