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

// keyring holds what verifies the tokens of an issuer: secrets, or public keys by id. It is never
// changed, only replaced.
type keyring struct {
	method  jwt.SigningMethod // the only one that is accepted
	secrets jwt.VerificationKeySet
	print   string // a hash of all secrets
	public  map[string]publicKey
	named   bool // a token must name its key, even if there is only one
}

// newKeyring returns the ring of one or more public keys, all of one algorithm and with different
// ids.
func newKeyring(keys []publicKey, named bool) *keyring {
	ring := &keyring{method: keys[0].method, public: make(map[string]publicKey, len(keys)),
		named: named}
	for _, k := range keys {
		ring.public[k.id] = k
	}
	return ring
}

// newSecrets returns the ring of one or more secrets.
func newSecrets(secrets ...[]byte) *keyring {
	ring := &keyring{method: jwt.SigningMethodHS256}
	for _, secret := range secrets {
		ring.secrets.Keys = append(ring.secrets.Keys, bytes.Clone(secret))
	}
	sum := sha256.Sum256(bytes.Join(secrets, []byte("\n")))
	ring.print = hex.EncodeToString(sum[:])
	return ring
}

// find returns the key for a token, in the form that package jwt expects, and the key's mark. kid
// is the value of the token's header kid, nil if there is none. It is looked up as it is, and only
// among the configured keys. known is false for a kid that may be that of a new key.
func (r *keyring) find(kid any) (key any, mark keyMark, known bool, err error) {
	if r.public == nil {
		return r.secrets, keyMark{thumbprint: r.print}, true, nil
	}
	if kid == nil {
		key, mark, err = r.soleKey()
		return key, mark, true, err
	}
	id, _ := kid.(string)
	k, ok := r.public[id]
	if !ok {
		return nil, keyMark{}, id == "", refuse("the token's key (header kid) is not known here")
	}
	return k.key, k.mark(), true, nil
}

// soleKey returns the one key, for a token that names none.
func (r *keyring) soleKey() (any, keyMark, error) {
	if len(r.public) != 1 || r.named {
		return nil, keyMark{}, refuse("the token doesn't name its key: the header kid is required")
	}
	for _, k := range r.public {
		return k.key, k.mark(), nil
	}
	return nil, keyMark{}, refuse("there is no key to verify the token with")
}

// keyMark identifies a key. All secrets of an issuer share one mark: when a secret is added or
// removed, all tokens are verified again.
type keyMark struct{ id, thumbprint string }

func (k publicKey) mark() keyMark { return keyMark{k.id, k.thumbprint} }

// has reports whether the ring still has the key of a mark, under its id.
func (r *keyring) has(mark keyMark) bool {
	if r.public == nil {
		return r.print == mark.thumbprint
	}
	return r.public[mark.id].thumbprint == mark.thumbprint
}

// names lists the ids of the keys in alphabetical order, for people. Of secrets it gives only their
// number.
func (r *keyring) names() []string {
	if r.public == nil {
		return []string{fmt.Sprintf("secrets: %d", len(r.secrets.Keys))}
	}
	return slices.Sorted(maps.Keys(r.public))
}
