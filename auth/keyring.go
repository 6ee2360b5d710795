package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// keyring holds what the tokens of an issuer are verified with: secrets, or public
// keys by id. It is never changed, only replaced.
type keyring struct {
	method  jwt.SigningMethod // the only one that is accepted
	secrets jwt.VerificationKeySet
	print   string // of all secrets
	public  map[string]publicKey
	named   bool // a token must name its key, also when there is only one
}

// newKeyring returns the ring of public keys, at least one, all of one algorithm and
// with different ids.
func newKeyring(keys []publicKey, named bool) *keyring {
	ring := &keyring{method: keys[0].method, public: make(map[string]publicKey, len(keys)), named: named}
	for _, k := range keys {
		ring.public[k.id] = k
	}
	return ring
}

// newSecrets returns the ring of secrets, at least one.
func newSecrets(secrets ...[]byte) *keyring {
	ring := &keyring{method: jwt.SigningMethodHS256}
	for _, secret := range secrets {
		ring.secrets.Keys = append(ring.secrets.Keys, bytes.Clone(secret))
	}
	sum := sha256.Sum256(bytes.Join(secrets, []byte("\n")))
	ring.print = hex.EncodeToString(sum[:])
	return ring
}

// find returns what to verify a token with, as package jwt wants it, and its mark.
// kid is the value of its header kid, nil if it has none; it is looked up as it is, and
// only among the configured keys. known is false for a kid that might be a new key's.
func (r *keyring) find(kid any) (key any, mark keyMark, known bool, err error) {
	if r.public == nil {
		return r.secrets, keyMark{thumbprint: r.print}, true, nil
	}
	if kid == nil {
		key, mark, err = r.only()
		return key, mark, true, err
	}
	id, _ := kid.(string)
	k, ok := r.public[id]
	if !ok {
		return nil, keyMark{}, id == "", refuse("the token's key (header kid) is not known here")
	}
	return k.key, k.mark(), true, nil
}

// only returns the one key, for a token that doesn't name any.
func (r *keyring) only() (any, keyMark, error) {
	if len(r.public) != 1 || r.named {
		return nil, keyMark{}, refuse("the token doesn't name its key: the header kid is required")
	}
	for _, k := range r.public {
		return k.key, k.mark(), nil
	}
	return nil, keyMark{}, refuse("there is no key to verify the token with")
}

// keyMark tells a key from every other one. Secrets have one mark for all of an issuer:
// when one comes or goes, its tokens are verified anew.
type keyMark struct{ id, thumbprint string }

func (k publicKey) mark() keyMark { return keyMark{k.id, k.thumbprint} }

// has tells whether the key of a mark is still there, under its id.
func (r *keyring) has(mark keyMark) bool {
	if r.public == nil {
		return r.print == mark.thumbprint
	}
	return r.public[mark.id].thumbprint == mark.thumbprint
}

// names lists the keys for people, in the order of the alphabet. Of secrets it says no
// more than how many there are.
func (r *keyring) names() []string {
	if r.public == nil {
		return []string{fmt.Sprintf("secrets: %d", len(r.secrets.Keys))}
	}
	return slices.Sorted(maps.Keys(r.public))
}
