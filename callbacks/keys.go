package callbacks

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/asyncflow/asyncflow"
)

const (
	// MinSecretBytes is the least length of a node secret.
	MinSecretBytes = 32
	// MaxOldSecrets is how many old node secrets are accepted in addition.
	MaxOldSecrets = 5
)

// Keys are derived from the node secret: one for completion tokens, one for the tokens of links,
// and one that seals the secrets of endpoints. All nodes of a database share them. While the secret
// is being changed there are several: the first one signs and seals, and each of them verifies and
// opens.
type Keys struct{ all []key }

type key struct {
	id    [keyIDBytes]byte
	macs  macs // for completion tokens
	links macs // for the tokens of links
	seal  cipher.AEAD
}

// A seal begins with a mark and the id of its key.
const (
	sealMark   = "afs2"
	keyIDBytes = 8
)

// NewKeys derives the keys from a secret of at least 32 bytes (HKDF-SHA-256, RFC 5869). Tokens and
// seals made with the others are accepted, too.
func NewKeys(secret []byte, others ...[]byte) (*Keys, error) {
	if len(others) > MaxOldSecrets {
		return nil, asyncflow.InvalidField("ASYNCFLOW_OLD_SECRETS",
			"has %d secrets; the limit is %d", len(others), MaxOldSecrets)
	}
	k := &Keys{}
	for i, s := range slices.Concat([][]byte{secret}, others) {
		if len(s) < MinSecretBytes {
			field := "secret"
			if i > 0 {
				field = "ASYNCFLOW_OLD_SECRETS"
			}
			return nil, asyncflow.InvalidField(field, "is %d bytes; it must be at least %d", len(s),
				MinSecretBytes)
		}
		one, err := newKey(s)
		if err != nil {
			return nil, fmt.Errorf("NewKeys: %w", err)
		}
		k.all = append(k.all, one)
	}
	return k, nil
}

func newKey(secret []byte) (k key, err error) {
	derive := func(label string, n int) []byte {
		if err != nil {
			return nil
		}
		var out []byte
		out, err = hkdf.Key(sha256.New, secret, nil, label, n)
		return out
	}
	k.macs = newMACs(derive("asyncflow completion token v1", 32))
	k.links = newMACs(derive("asyncflow link token v1", 32))
	sealKey := derive("asyncflow endpoint secret v1", 32)
	copy(k.id[:], derive("asyncflow key id v1", keyIDBytes))
	if err != nil {
		return k, err
	}
	block, err := aes.NewCipher(sealKey)
	if err != nil {
		return k, err
	}
	k.seal, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

// macs makes MACs with one key.
type macs struct{ pool *sync.Pool } // of *mac

func newMACs(secret []byte) macs {
	return macs{&sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}}
}

// Seal encrypts a secret of an endpoint (AES-256-GCM). context, such as the endpoint's id, ties the
// result to the place where it is stored.
func (k *Keys) Seal(secret, context string) []byte {
	return k.all[0].seal.Seal(k.SealedBy(), nil, []byte(secret), []byte(context))
}

// SealedBy returns the prefix of every seal made with the first secret.
func (k *Keys) SealedBy() []byte {
	return slices.Concat([]byte(sealMark), k.all[0].id[:])
}

// ID returns the id of the key that seals, for people. It reveals nothing about the secret.
func (k *Keys) ID() string { return hex.EncodeToString(k.all[0].id[:]) }

// Open decrypts what Seal made with the same context.
func (k *Keys) Open(sealed []byte, context string) (string, error) {
	one, ok := k.keyOf(sealed)
	if !ok {
		return "", sealedOtherwise(context)
	}
	secret, err := one.seal.Open(nil, nil, sealed[len(sealMark)+keyIDBytes:], []byte(context))
	if err != nil {
		return "", sealedOtherwise(context)
	}
	return string(secret), nil
}

// sealedOtherwise is the error of a secret that was sealed with none of the node's keys.
func sealedOtherwise(context string) error {
	return asyncflow.InvalidField("ASYNCFLOW_SECRET",
		"is not the one that the secret of endpoint %s was sealed with: all nodes share one, and "+
			"name the one before in ASYNCFLOW_OLD_SECRETS", context)
}

// keyOf returns the key with the id of a seal.
func (k *Keys) keyOf(sealed []byte) (key, bool) {
	id, ok := bytes.CutPrefix(sealed, []byte(sealMark))
	if !ok {
		return key{}, false
	}
	i := slices.IndexFunc(k.all, func(one key) bool { return bytes.HasPrefix(id, one.id[:]) })
	if i < 0 {
		return key{}, false
	}
	return k.all[i], true
}

// RandomBytes returns n random bytes, fit for keys.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails, by its documentation
	return b
}
