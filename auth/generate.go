package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"github.com/asyncflow/asyncflow"
)

const newRSABits = 3072

// GenerateKey generates a key of an algorithm (EdDSA, ES256 or RS256) and returns both halves as
// PEM. Tokens name the key by id. If id is empty, they name it by its thumbprint, and the PEM is
// without a header, which not every tool can read.
func GenerateKey(algorithm, id string) (private, public []byte, err error) {
	if len(id) > maxKeyIDLen {
		return nil, nil, asyncflow.InvalidField("kid", "must have at most %d bytes", maxKeyIDLen)
	}
	var signer crypto.Signer
	switch algorithm {
	case "EdDSA":
		_, signer, err = ed25519.GenerateKey(rand.Reader)
	case "ES256":
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "RS256":
		signer, err = rsa.GenerateKey(rand.Reader, newRSABits)
	default:
		return nil, nil, asyncflow.InvalidField("alg", "is %.20q; it must be EdDSA, ES256 or RS256",
			algorithm)
	}
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, err
	}
	public, err = publicPEM(signer.Public(), id)
	return encodePEM("PRIVATE KEY", der, id), public, err
}

func publicPEM(key crypto.PublicKey, id string) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return encodePEM("PUBLIC KEY", der, id), err
}

func encodePEM(kind string, der []byte, id string) []byte {
	block := &pem.Block{Type: kind, Bytes: der}
	if id != "" {
		block.Headers = map[string]string{"kid": id}
	}
	return pem.EncodeToMemory(block)
}

// KeySet is the public keys in a text.
type KeySet struct{ keys []publicKey }

// KeyInfo describes a key.
type KeyInfo struct {
	ID         string // what tokens name it by
	Thumbprint string // RFC 7638
	Algorithm  string
}

// ReadKeys reads the keys of a file: PEM blocks PUBLIC KEY, a JWK Set, or one PEM block PRIVATE
// KEY: of that it returns the public half. An error says what is wrong with the text.
func ReadKeys(text []byte) (KeySet, error) {
	if bytes.Contains(text, []byte(pemBegin+"PRIVATE KEY")) {
		_, public, err := parsePrivateKey(text)
		return KeySet{[]publicKey{public}}, err
	}
	keys, _, err := parseKeys(text, "")
	return KeySet{keys}, err
}

// List describes the keys, in their order.
func (s KeySet) List() []KeyInfo {
	list := make([]KeyInfo, len(s.keys))
	for i, k := range s.keys {
		list[i] = KeyInfo{ID: k.id, Thumbprint: k.thumbprint, Algorithm: k.method.Alg()}
	}
	return list
}

// Has reports whether every key of other is in s, under the same id.
func (s KeySet) Has(other KeySet) bool {
	ring := newKeyring(s.keys, false)
	for _, k := range other.keys {
		if !ring.has(k.mark()) {
			return false
		}
	}
	return true
}

// With returns the keys of s and of other. They must be of one algorithm and of different ids.
func (s KeySet) With(other KeySet) (KeySet, error) {
	all := KeySet{append(append([]publicKey(nil), s.keys...), other.keys...)}
	return all, checkSet(all.keys)
}

// PEM returns the keys as PEM blocks.
func (s KeySet) PEM() ([]byte, error) {
	var all []byte
	for _, k := range s.keys {
		id := k.id
		if id == k.thumbprint {
			id = ""
		}
		text, err := publicPEM(k.key, id)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.id, err)
		}
		all = append(all, text...)
	}
	return all, nil
}

// JWKS returns the keys as a JWK Set, for others to verify tokens with.
func (s KeySet) JWKS() ([]byte, error) { return marshalJWKS(s.keys) }
