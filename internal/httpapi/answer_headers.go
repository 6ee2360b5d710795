package httpapi

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
)

// answerHeaders are what a handler adds to its answer, whether that is a success or an error.
type answerHeaders struct {
	allowance *ratelimit.Allowance
	etag      string
}

type answerHeadersKey struct{}

func headersOf(ctx context.Context) *answerHeaders {
	if h, ok := ctx.Value(answerHeadersKey{}).(*answerHeaders); ok {
		return h
	}
	return &answerHeaders{}
}

// setETag adds the ETag of what an answer shows.
func setETag(ctx context.Context, etag string) { headersOf(ctx).etag = etag }

// write sets the headers of an answer.
func (h *answerHeaders) write(c *fiber.Ctx) {
	if h.etag != "" {
		c.Set(fiber.HeaderETag, h.etag)
	}
	if h.allowance == nil {
		return
	}
	policy, limit := h.allowance.Headers()
	c.Set("RateLimit-Policy", policy)
	c.Set("RateLimit", limit)
}

// encode writes JSON for programs and people: without escapes for HTML. The last byte is a line
// feed.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// writeDocument answers with a JSON document, which must not change until it is sent.
func writeDocument(c *fiber.Ctx, status int, doc []byte) error {
	c.Status(status).Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(doc)
	return nil
}
