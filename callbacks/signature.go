package callbacks

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/asyncflow/asyncflow"
)

// Lengths of a signing secret, by the Standard Webhooks specification.
const (
	secretPrefix   = "whsec_"
	secretLeast    = 24
	secretMost     = 64
	secretOwnBytes = 32
)

// NewSecret makes a signing secret: whsec_ and the base64 of 32 random bytes.
func NewSecret() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(RandomBytes(secretOwnBytes))
}

// CheckSecret tells what is wrong with a signing secret that a user brings.
func CheckSecret(secret string) error {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return asyncflow.InvalidField("secret", "must start with %s", secretPrefix)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return asyncflow.InvalidField("secret", "must be %s and base64", secretPrefix)
	}
	if len(raw) < secretLeast || len(raw) > secretMost {
		return asyncflow.InvalidField("secret", "holds %d bytes; it must be %d to %d", len(raw), secretLeast, secretMost)
	}
	return nil
}

// signer signs deliveries for one endpoint by Standard Webhooks, scheme v1:
// HMAC-SHA-256 over "id.timestamp.body".
type signer struct{ webhook *standardwebhooks.Webhook }

func newSigner(secret string) (signer, error) {
	if err := CheckSecret(secret); err != nil {
		return signer{}, err // an empty one would sign, too
	}
	w, err := standardwebhooks.NewWebhook(secret)
	return signer{w}, err
}

// sign sets the three headers of a delivery.
func (s signer) sign(h http.Header, id string, now time.Time, body []byte) error {
	signature, err := s.webhook.Sign(id, now, body)
	if err != nil {
		return err
	}
	h["Webhook-Id"] = []string{id}
	h["Webhook-Timestamp"] = []string{strconv.FormatInt(now.Unix(), 10)}
	h["Webhook-Signature"] = []string{signature}
	return nil
}
