package signing

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// Tolerance is how far the time of a request may be from now, in either direction.
	Tolerance = 5 * time.Minute
	// maxSignatures bounds the entries of Webhook-Signature. Checking each one takes time, and the
	// sender isn't authenticated yet.
	maxSignatures = 16
	maxID         = 256 // bytes of Webhook-Id
)

// Verifier verifies requests with any of its keys. It is safe for concurrent use.
type Verifier struct {
	mu   sync.RWMutex
	keys []verifyingKey
}

// Request is the id and the time of a verified request.
type Request struct {
	ID string    // a repeated request bears the same id
	At time.Time // when it was signed, in whole seconds of the signer's clock
}

type verifyingKey interface {
	// verifies reports whether a signature of the request is by this key.
	verifies(r Request, body []byte, signatures []string) bool
}

// NewVerifier returns a Verifier with keys: shared secrets (whsec_ and base64) or ed25519 public
// keys (whpk_ and base64). Its error is CodeInvalid.
func NewVerifier(keys ...string) (*Verifier, error) {
	v := &Verifier{}
	for _, k := range keys {
		if err := v.Add(k); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Add adds a key: requests that it verifies are accepted, too.
func (v *Verifier) Add(key string) error {
	k, err := newVerifyingKey(key)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = append(slices.Clip(v.keys), k)
	return nil
}

// IsSecret reports whether a key is a secret that both sides share.
func IsSecret(key string) bool { return strings.HasPrefix(key, secretPrefix) }

func newVerifyingKey(key string) (verifyingKey, error) {
	if encoded, ok := strings.CutPrefix(key, publicKeyPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, asyncflow.InvalidField("key", "must be %s and the base64 of %d bytes",
				publicKeyPrefix, ed25519.PublicKeySize)
		}
		return ed25519Key(raw), nil
	}
	switch {
	case key == "":
		return nil, asyncflow.InvalidField("key", "is empty; it must be %s or %s, and base64",
			secretPrefix, publicKeyPrefix)
	case strings.HasPrefix(key, privateKeyPrefix):
		return nil, asyncflow.InvalidField("key",
			"is a private key, which only asyncflow should have; a worker has the public one, %s…",
			publicKeyPrefix)
	case !IsSecret(key):
		return nil, asyncflow.InvalidField("key", "must start with %s or %s", secretPrefix,
			publicKeyPrefix)
	}
	return newHMAC(key)
}

// Verify returns the id and time of a request if one of the keys verifies a signature, and the time
// is within Tolerance of now. Otherwise the error is CodeUnauthenticated.
func (v *Verifier) Verify(h http.Header, body []byte, now time.Time) (Request, error) {
	refuse := func(why string) (Request, error) {
		return Request{}, asyncflow.Errorf(asyncflow.CodeUnauthenticated, "%s", why)
	}
	id := h.Get(headerID)
	sent := h.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(sent, 10, 64)
	signatures := strings.Fields(h.Get(headerSignature))
	switch {
	case id == "" || sent == "" || len(signatures) == 0:
		return refuse("the request is not signed: it needs Webhook-Id, Webhook-Timestamp and " +
			"Webhook-Signature")
	case len(id) > maxID:
		return refuse("its Webhook-Id is too long")
	case len(signatures) > maxSignatures:
		return refuse("it has too many signatures")
	case err != nil:
		return refuse("its Webhook-Timestamp is no number of seconds")
	}
	r := Request{ID: id, At: time.Unix(seconds, 0)}
	if age := now.Sub(r.At); age > Tolerance || age < -Tolerance {
		return refuse("its Webhook-Timestamp is more than " + Tolerance.String() +
			" from now: it is old, or a clock is wrong")
	}
	v.mu.RLock()
	keys := v.keys
	v.mu.RUnlock()
	if !slices.ContainsFunc(keys, func(k verifyingKey) bool {
		return k.verifies(r, body, signatures)
	}) {
		return refuse("no signature of it verifies")
	}
	return r, nil
}

func (k hmacKey) verifies(r Request, body []byte, signatures []string) bool {
	want, err := k.sign(r.ID, r.At, body)
	return err == nil && slices.ContainsFunc(signatures, func(given string) bool {
		return hmac.Equal([]byte(given), []byte(want))
	})
}

// ed25519Key is an ed25519 public key.
type ed25519Key ed25519.PublicKey

func (k ed25519Key) verifies(r Request, body []byte, signatures []string) bool {
	signed := content(r.ID, r.At, body)
	return slices.ContainsFunc(signatures, func(given string) bool {
		encoded, ok := strings.CutPrefix(given, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		return ok && err == nil && ed25519.Verify(ed25519.PublicKey(k), signed, signature)
	})
}
