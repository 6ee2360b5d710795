package auth

import (
	"bytes"
	"crypto"

	"github.com/asyncflow/asyncflow"
	"github.com/golang-jwt/jwt/v5"
)

// keyring holds what tokens are verified with: a secret, or public keys by id.
type keyring struct {
	method jwt.SigningMethod // the only one that is accepted
	secret []byte
	public map[string]crypto.PublicKey
}

// newKeyring takes the verification keys from a Config that passed its check.
func newKeyring(c Config) (keyring, error) {
	if len(c.HMACSecret) > 0 {
		return keyring{method: jwt.SigningMethodHS256, secret: bytes.Clone(c.HMACSecret)}, nil
	}
	if len(c.PublicKeys) == 0 {
		return keyring{}, asyncflow.InvalidField("PublicKeys", "must be set, or HMACSecret: there is no key to verify with")
	}
	keys, err := parsePublicKeys(c.PublicKeys)
	if err != nil {
		return keyring{}, asyncflow.InvalidField("PublicKeys", "can't be used: %v", err)
	}
	ring := keyring{method: keys[0].method, public: make(map[string]crypto.PublicKey, len(keys))}
	for _, k := range keys {
		ring.public[k.id] = k.key
	}
	return ring, nil
}

// find returns the key to verify a token with. kid is the value of its header
// kid, nil if it has none; it is looked up as it is, and only among the
// configured keys.
func (r keyring) find(kid any) (any, error) {
	if r.secret != nil {
		return r.secret, nil
	}
	if kid == nil {
		return r.only()
	}
	id, _ := kid.(string)
	key, ok := r.public[id]
	if !ok {
		return nil, refuse("the token's key (header kid) is not known here")
	}
	return key, nil
}

// only returns the one key, for a token that doesn't name any.
func (r keyring) only() (any, error) {
	if len(r.public) != 1 {
		return nil, refuse("the token doesn't name its key: the header kid is required")
	}
	for _, key := range r.public {
		return key, nil
	}
	return nil, refuse("there is no key to verify the token with")
}
