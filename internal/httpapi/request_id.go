package httpapi

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/gofiber/fiber/v2"
)

// requestIDKey is where a request keeps its id.
type requestIDKey struct{}

// requestID returns the id of a request, which its answer has too: the caller's own if it is well
// formed, else a new one.
func requestID(c *fiber.Ctx) string {
	if id, ok := c.Locals(requestIDKey{}).(string); ok {
		return id
	}
	id := c.Get(fiber.HeaderXRequestID)
	if !wellFormed(id) {
		id = newRequestID()
	}
	c.Locals(requestIDKey{}, id)
	c.Set(fiber.HeaderXRequestID, id)
	return id
}

// newRequestID returns 128 random bits. They tell requests apart and need not be secret.
func newRequestID() string {
	var bits [16]byte
	binary.LittleEndian.PutUint64(bits[:], rand.Uint64())
	binary.LittleEndian.PutUint64(bits[8:], rand.Uint64())
	return hex.EncodeToString(bits[:])
}

// maxRequestID bounds an id that a caller gives, in bytes. Every JWT is longer.
const maxRequestID = 64

// wellFormed reports whether headers, logs and rows can hold an id without escapes.
func wellFormed(id string) bool {
	for _, b := range []byte(id) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case b == '-', b == '_', b == '.', b == ':', b == '=', b == '/', b == '+':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
