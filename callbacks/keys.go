package callbacks

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/asyncflow/asyncflow"
)

// MinSecretBytes is the least length of the node secret.
const MinSecretBytes = 32

// Keys are what a node derives from its secret: a key for completion tokens and
// one that seals the secrets of endpoints. All nodes of a database share them.
type Keys struct {
	token []byte
	seal  cipher.AEAD
}

// NewKeys derives the keys from a secret of at least 32 bytes (HKDF-SHA-256,
// RFC 5869).
func NewKeys(secret []byte) (*Keys, error) {
	if len(secret) < MinSecretBytes {
		return nil, asyncflow.InvalidField("secret", "is %d bytes; it must be at least %d", len(secret), MinSecretBytes)
	}
	token, err := hkdf.Key(sha256.New, secret, nil, "asyncflow completion token v1", 32)
	if err != nil {
		return nil, fmt.Errorf("NewKeys: %w", err)
	}
	sealKey, err := hkdf.Key(sha256.New, secret, nil, "asyncflow endpoint secret v1", 32)
	if err != nil {
		return nil, fmt.Errorf("NewKeys: %w", err)
	}
	block, err := aes.NewCipher(sealKey)
	if err != nil {
		return nil, fmt.Errorf("NewKeys: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("NewKeys: %w", err)
	}
	return &Keys{token: token, seal: seal}, nil
}

// Seal encrypts an endpoint's secret for the place where it is stored (AES-256-GCM).
// context, such as the endpoint's id, ties the result to that place.
func (k *Keys) Seal(secret, context string) []byte {
	return k.seal.Seal(nil, nil, []byte(secret), []byte(context))
}

// Open decrypts what Seal made with the same context.
func (k *Keys) Open(sealed []byte, context string) (string, error) {
	secret, err := k.seal.Open(nil, nil, sealed, []byte(context))
	if err != nil {
		return "", asyncflow.InvalidField("ASYNCFLOW_SECRET", "is not the one that the secret of endpoint %s was sealed with: all nodes share one", context)
	}
	return string(secret), nil
}

// RandomBytes returns n bytes fit for keys.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails, by its documentation
	return b
}
