package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
)

// thumbprint returns the RFC 7638 thumbprint of a public key: the base64url of the SHA-256 of its
// JWK with only the required members, in the order of their names and without white space. Ed25519
// follows RFC 8037, section 2.
func thumbprint(key crypto.PublicKey) (string, error) {
	jwk, err := canonicalJWK(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(jwk))
	return base64url(sum[:]), nil
}

func canonicalJWK(key crypto.PublicKey) (string, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return fmt.Sprintf(`{"crv":"Ed25519","kty":"OKP","x":"%s"}`, base64url(k)), nil
	case *ecdsa.PublicKey:
		point, err := k.Bytes() // a byte 4, then x and y at the full size of the field
		if err != nil {
			return "", err
		}
		size := (len(point) - 1) / 2
		x := point[1 : 1+size]
		y := point[1+size:]
		return fmt.Sprintf(`{"crv":"%s","kty":"EC","x":"%s","y":"%s"}`, k.Params().Name, base64url(x),
			base64url(y)), nil
	case *rsa.PublicKey:
		e := big.NewInt(int64(k.E)).Bytes()
		return fmt.Sprintf(`{"e":"%s","kty":"RSA","n":"%s"}`, base64url(e), base64url(k.N.Bytes())), nil
	default:
		return "", fmt.Errorf("a %T has no thumbprint", key)
	}
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
