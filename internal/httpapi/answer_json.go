package httpapi

import (
	"bytes"
	"encoding/json"

	"github.com/gofiber/fiber/v2"
)

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
