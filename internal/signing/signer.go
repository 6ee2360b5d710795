package signing

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/asyncflow/asyncflow"
)

// Prefixes and lengths of signing secrets, by the Standard Webhooks specification.
const (
	secretPrefix = "whsec_" // of an HMAC secret
	// of an ed25519 private key: its seed (32 bytes), or both keys (64 bytes)
	privateKeyPrefix = "whsk_"
	publicKeyPrefix  = "whpk_"
	secretLeast      = 24
	secretMost       = 64
	secretOwnBytes   = 32
)

// NewSecret makes a signing secret: whsec_ and the base64 of 32 random bytes.
func NewSecret() string { return secretPrefix + random(secretOwnBytes) }

// NewSecretOf makes a signing secret of a kind; "" means hmac.
func NewSecretOf(kind asyncflow.SecretKind) (string, error) {
	switch kind {
	case "", asyncflow.SecretHMAC:
		return NewSecret(), nil
	case asyncflow.SecretEd25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return privateKeyPrefix + base64.StdEncoding.EncodeToString(key), err
	}
	return "", asyncflow.InvalidField("kind", "is %q; it must be hmac or ed25519", kind)
}

// random returns n random bytes in base64.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails, by its documentation
	return base64.StdEncoding.EncodeToString(b)
}

// CheckSecret returns an error if a secret that a user brings is invalid.
func CheckSecret(secret string) error {
	_, err := NewSigner(secret)
	return err
}

// A Signer signs with one secret.
type Signer interface {
	// Kind returns the kind of its signatures.
	Kind() asyncflow.SecretKind
	// PublicKey returns the key that verifies its signatures, whpk_ and base64; "" if both sides
	// share the secret.
	PublicKey() string
	// sign returns one entry of Webhook-Signature.
	sign(id string, at time.Time, body []byte) (string, error)
}

// NewSigner returns the signer of a secret: whsec_ or whsk_, and base64. Its error is CodeInvalid,
// and names secret.
func NewSigner(secret string) (Signer, error) {
	if encoded, ok := strings.CutPrefix(secret, privateKeyPrefix); ok {
		return newEd25519Signer(encoded)
	}
	if !strings.HasPrefix(secret, secretPrefix) {
		return nil, asyncflow.InvalidField("secret", "must start with %s or %s", secretPrefix,
			privateKeyPrefix)
	}
	return newHMAC(secret)
}

// Header is one header of a request.
type Header struct{ Name, Value string }

// Sign sets the three headers that Headers returns.
func Sign(h http.Header, id string, at time.Time, body []byte, signers []Signer) error {
	all, err := Headers(id, at, body, signers)
	if err != nil {
		return err
	}
	for _, one := range all {
		h[one.Name] = []string{one.Value}
	}
	return nil
}

// Headers returns the headers with the id of a request, its time, and one signature by each signer.
// It returns an error if there is no signer.
func Headers(id string, at time.Time, body []byte, signers []Signer) (all [3]Header, err error) {
	var signatures string
	for _, s := range signers {
		one, err := s.sign(id, at, body)
		if err != nil {
			return all, err
		}
		if signatures != "" {
			signatures += " "
		}
		signatures += one
	}
	if signatures == "" {
		return all, errors.New("there is no secret that signs")
	}
	return [...]Header{{headerID, id}, {headerTimestamp, strconv.FormatInt(at.Unix(), 10)},
		{headerSignature, signatures}}, nil
}

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp" // unix seconds
	headerSignature = "Webhook-Signature" // entries separated by spaces
)

// hmacKey is the scheme v1, HMAC-SHA-256. It signs and verifies.
type hmacKey struct {
	webhook *standardwebhooks.Webhook
	macs    *sync.Pool // of *mac; the library makes three copies of the body for each signature
}

// mac is a MAC with a buffer for its input and its sum.
type mac struct {
	hash.Hash
	buffer []byte
}

func newHMAC(secret string) (hmacKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return hmacKey{}, asyncflow.InvalidField("secret", "must be %s and base64", secretPrefix)
	}
	if len(raw) < secretLeast || len(raw) > secretMost { // even an empty secret could sign
		return hmacKey{}, asyncflow.InvalidField("secret", "holds %d bytes; it must be %d to %d",
			len(raw), secretLeast, secretMost)
	}
	w, err := standardwebhooks.NewWebhookRaw(raw)
	return hmacKey{w, &sync.Pool{New: func() any {
		return &mac{Hash: hmac.New(sha256.New, raw)}
	}}}, err
}

func (k hmacKey) sign(id string, at time.Time, body []byte) (string, error) {
	m := k.macs.Get().(*mac)
	defer k.macs.Put(m)
	m.Reset()
	m.buffer = appendPrefix(m.buffer[:0], id, at)
	m.Write(m.buffer)
	m.Write(body)
	sum := m.Sum(m.buffer[:0])
	m.buffer = base64.StdEncoding.AppendEncode(append(sum, "v1,"...), sum)
	return string(m.buffer[len(sum):]), nil
}

// Kind is hmac.
func (hmacKey) Kind() asyncflow.SecretKind { return asyncflow.SecretHMAC }

// PublicKey is empty: both sides share the secret.
func (hmacKey) PublicKey() string { return "" }

// ed25519Signer is the scheme v1a: an ed25519 signature, which the public key verifies.
type ed25519Signer struct{ key ed25519.PrivateKey }

func newEd25519Signer(encoded string) (Signer, error) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, asyncflow.InvalidField("secret", "must be %s and base64", privateKeyPrefix)
	}
	if len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize {
		return nil, asyncflow.InvalidField("secret",
			"holds %d bytes; an ed25519 key has %d, or %d with its public key", len(raw),
			ed25519.SeedSize,
			ed25519.PrivateKeySize)
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if len(raw) == ed25519.PrivateKeySize && !key.Equal(ed25519.PrivateKey(raw)) {
		return nil, asyncflow.InvalidField("secret",
			"has a public key that is not its private key's")
	}
	return ed25519Signer{key}, nil
}

func (s ed25519Signer) sign(id string, at time.Time, body []byte) (string, error) {
	signature := ed25519.Sign(s.key, content(id, at, body))
	return "v1a," + base64.StdEncoding.EncodeToString(signature), nil
}

// Kind is ed25519.
func (ed25519Signer) Kind() asyncflow.SecretKind { return asyncflow.SecretEd25519 }

// PublicKey returns the public half of the key.
func (s ed25519Signer) PublicKey() string {
	return publicKeyPrefix + base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// content is what a signature covers.
func content(id string, at time.Time, body []byte) []byte {
	return append(appendPrefix(nil, id, at), body...)
}

// appendPrefix appends what comes before the body in content.
func appendPrefix(b []byte, id string, at time.Time) []byte {
	b = append(append(b, id...), '.')
	return append(strconv.AppendInt(b, at.Unix(), 10), '.')
}
