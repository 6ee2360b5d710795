package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

const (
	pemBegin    = "-----BEGIN "
	maxKeyIDLen = 128 // bytes
)

// publicKey is a configured key that verifies tokens.
type publicKey struct {
	id         string // by which a token names it: see the package documentation
	thumbprint string // RFC 7638
	method     jwt.SigningMethod
	key        crypto.PublicKey
}

// parseKeys reads public keys from PEM blocks or from a JWK Set. named reports whether a token must
// name its key. algorithm, if it isn't empty, is the one that the keys must be for.
func parseKeys(text []byte, algorithm string) (keys []publicKey, named bool, err error) {
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		keys, err = parseJWKS(text, algorithm)
		return keys, true, err
	}
	keys, err = parsePublicKeys(text)
	if err == nil && algorithm != "" && keys[0].method.Alg() != algorithm {
		err = fmt.Errorf("the keys are for %s, not %s", keys[0].method.Alg(), algorithm)
	}
	return keys, false, err
}

// checkSet refuses keys of several algorithms, or with the same id.
func checkSet(keys []publicKey) error {
	ids := make(map[string]bool, len(keys))
	for _, k := range keys {
		if first, this := keys[0].method.Alg(), k.method.Alg(); first != this {
			return fmt.Errorf("keys are of several algorithms, %s and %s", first, this)
		}
		if ids[k.id] {
			return fmt.Errorf("two keys have the id %q", k.id)
		}
		ids[k.id] = true
	}
	return nil
}

// parsePublicKeys reads every PEM block of text. All must be PKIX public keys of one algorithm,
// with different ids.
func parsePublicKeys(text []byte) ([]publicKey, error) {
	blocks, err := pemBlocks(text, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	keys := make([]publicKey, len(blocks))
	for i, block := range blocks {
		if keys[i], err = parsePublicKey(block); err != nil {
			return nil, fmt.Errorf("key %d of %d: %w", i+1, len(blocks), err)
		}
	}
	return keys, checkSet(keys)
}

func parsePublicKey(block *pem.Block) (publicKey, error) {
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return publicKey{}, err
	}
	id, named := block.Headers["kid"]
	return newPublicKey(key, id, named)
}

// parsePrivateKey reads a PKCS #8 private key and describes its public half.
func parsePrivateKey(text []byte) (crypto.Signer, publicKey, error) {
	blocks, err := pemBlocks(text, "PRIVATE KEY")
	if err != nil {
		return nil, publicKey{}, err
	}
	if len(blocks) != 1 {
		return nil, publicKey{}, fmt.Errorf("must be one key, not %d", len(blocks))
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0].Bytes)
	if err != nil {
		return nil, publicKey{}, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, publicKey{}, fmt.Errorf("a %T can't sign", key)
	}
	id, named := blocks[0].Headers["kid"]
	public, err := newPublicKey(signer.Public(), id, named)
	return signer, public, err
}

// newPublicKey describes a key. If it isn't named, its id is its thumbprint.
func newPublicKey(key crypto.PublicKey, id string, named bool) (publicKey, error) {
	method, err := methodOf(key)
	if err != nil {
		return publicKey{}, err
	}
	print, err := thumbprint(key)
	if !named {
		id = print
	} else if err == nil && (id == "" || len(id) > maxKeyIDLen) {
		err = fmt.Errorf("its kid must have 1 to %d bytes", maxKeyIDLen)
	}
	return publicKey{id: id, thumbprint: print, method: method, key: key}, err
}

// methodNamed returns the method of a supported algorithm, else nil.
func methodNamed(algorithm string) jwt.SigningMethod {
	switch algorithm {
	case "HS256", "EdDSA", "ES256", "RS256":
		return jwt.GetSigningMethod(algorithm)
	}
	return nil
}

// methodOf returns the only method that key may be used with.
func methodOf(key crypto.PublicKey) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA, nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return nil, fmt.Errorf("an ECDSA key must be on P-256, not %s", k.Params().Name)
		}
		return jwt.SigningMethodES256, nil
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("an RSA key must have at least %d bits, not %d", minRSABits,
				k.N.BitLen())
		}
		return jwt.SigningMethodRS256, nil
	default:
		return nil, fmt.Errorf("a %T is none of Ed25519, ECDSA and RSA", key)
	}
}

// pemBlocks returns the blocks of text, one or more and all of the wanted type. It counts them,
// because pem.Decode silently skips a damaged block, and the missing key would only be noticed much
// later.
func pemBlocks(text []byte, wanted string) ([]*pem.Block, error) {
	var blocks []*pem.Block
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != wanted {
			return nil, fmt.Errorf("must hold PEM blocks of type %q, not %.40q", wanted, block.Type)
		}
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("holds no PEM block of type %q", wanted)
	}
	if bytes.Count(text, []byte(pemBegin)) != len(blocks) {
		return nil, errors.New("holds a damaged PEM block")
	}
	return blocks, nil
}

// maxSecrets bounds the secrets of a file: a token is checked against each until one fits.
const maxSecrets = 10

// parseSecrets reads HS256 secrets, one a line. It ignores blank lines, and spaces around a secret.
func parseSecrets(text []byte) ([][]byte, error) {
	var secrets [][]byte
	number := 0
	for line := range bytes.Lines(text) {
		number++
		secret := bytes.TrimSpace(line)
		if len(secret) == 0 {
			continue
		}
		if bytes.HasPrefix(secret, []byte(pemBegin)) {
			return nil, errors.New("it holds a PEM block, and secrets must stand there, one a line")
		}
		if len(secret) < MinSecretBytes {
			return nil, fmt.Errorf("the secret in line %d must have at least %d bytes, not %d",
				number, MinSecretBytes, len(secret))
		}
		for _, other := range secrets {
			if bytes.Equal(other, secret) {
				return nil, fmt.Errorf("the secret in line %d is there already", number)
			}
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, errors.New("it holds no secret")
	}
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("it holds %d secrets; the limit is %d", len(secrets), maxSecrets)
	}
	return secrets, nil
}

// firstSecret returns the first secret of a file.
func firstSecret(name string) ([]byte, error) {
	text, err := fileReader(name)(context.Background())
	if err != nil {
		return nil, err
	}
	secrets, err := parseSecrets(text)
	if err != nil {
		return nil, err
	}
	return secrets[0], nil
}
