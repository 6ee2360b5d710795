package callbacks

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/asyncflow/asyncflow"
)

// Prefixes and lengths of signing secrets, by the Standard Webhooks specification.
const (
	secretPrefix     = "whsec_" // of an HMAC secret
	privateKeyPrefix = "whsk_"  // of an ed25519 private key: its seed of 32 bytes, or the 64 bytes of both keys
	publicKeyPrefix  = "whpk_"
	secretLeast      = 24
	secretMost       = 64
	secretOwnBytes   = 32
)

// NewSecret makes a signing secret: whsec_ and the base64 of 32 random bytes.
func NewSecret() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(RandomBytes(secretOwnBytes))
}

// NewSecretOf makes a signing secret of a kind; "" is the kind hmac.
func NewSecretOf(kind asyncflow.SecretKind) (string, error) {
	switch kind {
	case "", asyncflow.SecretHMAC:
		return NewSecret(), nil
	case asyncflow.SecretEd25519:
		pair := ed25519.NewKeyFromSeed(RandomBytes(ed25519.SeedSize))
		return privateKeyPrefix + base64.StdEncoding.EncodeToString(pair), nil
	}
	return "", asyncflow.InvalidField("kind", "is %q; it must be hmac or ed25519", kind)
}

// CheckSecret tells what is wrong with a signing secret that a user brings.
func CheckSecret(secret string) error {
	_, err := newSigner(secret)
	return err
}

// A signer signs for an endpoint by Standard Webhooks, over "id.timestamp.body".
type signer interface {
	// sign returns one entry of Webhook-Signature.
	sign(id string, at time.Time, body []byte) (string, error)
	kind() asyncflow.SecretKind
	publicKey() string // "" where both sides have the same secret
}

func newSigner(secret string) (signer, error) {
	if encoded, ok := strings.CutPrefix(secret, privateKeyPrefix); ok {
		return newEd25519Signer(encoded)
	}
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, asyncflow.InvalidField("secret", "must start with %s or %s", secretPrefix, privateKeyPrefix)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, asyncflow.InvalidField("secret", "must be %s and base64", secretPrefix)
	}
	if len(raw) < secretLeast || len(raw) > secretMost { // an empty one would sign, too
		return nil, asyncflow.InvalidField("secret", "holds %d bytes; it must be %d to %d", len(raw), secretLeast, secretMost)
	}
	w, err := standardwebhooks.NewWebhookRaw(raw)
	return hmacSigner{w}, err
}

// hmacSigner is the scheme v1: HMAC-SHA-256.
type hmacSigner struct{ webhook *standardwebhooks.Webhook }

func (s hmacSigner) sign(id string, at time.Time, body []byte) (string, error) {
	return s.webhook.Sign(id, at, body)
}
func (hmacSigner) kind() asyncflow.SecretKind { return asyncflow.SecretHMAC }
func (hmacSigner) publicKey() string          { return "" }

// ed25519Signer is the scheme v1a: an ed25519 signature, which the public key verifies.
type ed25519Signer struct{ key ed25519.PrivateKey }

func newEd25519Signer(encoded string) (signer, error) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, asyncflow.InvalidField("secret", "must be %s and base64", privateKeyPrefix)
	}
	if len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize {
		return nil, asyncflow.InvalidField("secret", "holds %d bytes; an ed25519 key has %d, or %d with its public key", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if len(raw) == ed25519.PrivateKeySize && !key.Equal(ed25519.PrivateKey(raw)) {
		return nil, asyncflow.InvalidField("secret", "has a public key that is not its private key's")
	}
	return ed25519Signer{key}, nil
}

func (s ed25519Signer) sign(id string, at time.Time, body []byte) (string, error) {
	signed := append([]byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."), body...)
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(s.key, signed)), nil
}
func (ed25519Signer) kind() asyncflow.SecretKind { return asyncflow.SecretEd25519 }

func (s ed25519Signer) publicKey() string {
	return publicKeyPrefix + base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// sign sets the three headers of a request to an endpoint: a signature by each of its
// secrets that is active.
func (s *Sender) sign(h http.Header, e asyncflow.Endpoint, id string, at time.Time, body []byte) error {
	var signatures string
	for _, secret := range e.Secrets {
		if !secret.Active(at) {
			continue
		}
		signer, err := s.signerFor(e.ID, secret)
		if err != nil {
			return err
		}
		one, err := signer.sign(id, at, body)
		if err != nil {
			return err
		}
		if signatures != "" {
			signatures += " "
		}
		signatures += one
	}
	if signatures == "" {
		return errors.New("the endpoint has no secret that signs")
	}
	h["Webhook-Id"] = []string{id}
	h["Webhook-Timestamp"] = []string{strconv.FormatInt(at.Unix(), 10)}
	h["Webhook-Signature"] = []string{signatures}
	return nil
}

// signerFor returns the signer of a secret. It is kept: opening a secret costs
// about as much as signing with it.
func (s *Sender) signerFor(endpoint string, secret asyncflow.SigningSecret) (signer, error) {
	if known, ok := s.signers.Load(string(secret.Sealed)); ok {
		return known.(signer), nil
	}
	opened, err := s.keys.Open(secret.Sealed, endpoint)
	if err != nil {
		return nil, err
	}
	made, err := newSigner(opened)
	if err != nil {
		return nil, err
	}
	if s.known.Add(1)%maxSigners == 0 { // secrets that were rotated away must not pile up
		s.signers.Clear()
	}
	s.signers.Store(string(secret.Sealed), made)
	return made, nil
}

// maxSigners bounds how many secrets' signers are kept.
const maxSigners = 10000
