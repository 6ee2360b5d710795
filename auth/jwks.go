package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/MicahParks/jwkset"
)

// maxSetKeys bounds the keys of a JWK Set.
const maxSetKeys = 100

// parseJWKS reads the keys of a JWK Set (RFC 7517) that verify signatures of an algorithm. If the
// algorithm is empty, all keys must be of one. Keys of other algorithms and for other uses are
// skipped: issuers publish them side by side. A set that contains a secret is refused as a whole,
// like one with two keys of the same id. The id of a key without kid is its thumbprint.
func parseJWKS(text []byte, algorithm string) ([]publicKey, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("is not a JWK Set: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("is not a JWK Set: it has no member keys")
	}
	if len(*set.Keys) > maxSetKeys {
		return nil, fmt.Errorf("has %d keys; the limit is %d", len(*set.Keys), maxSetKeys)
	}
	var keys []publicKey
	skipped := "" // why the last skipped key was skipped
	for i, raw := range *set.Keys {
		key, err := parseJWK(raw, algorithm)
		var fatal *secretInSetError
		switch {
		case errors.As(err, &fatal):
			return nil, fmt.Errorf("key %d of %d: %w", i+1, len(*set.Keys), err)
		case err != nil:
			skipped = fmt.Sprintf("; key %d %v", i+1, err)
		default:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("has no key for signatures%s%s", forAlgorithm(algorithm), skipped)
	}
	return keys, checkSet(keys)
}

// secretInSetError is the error of a key set that reveals a secret. Nothing in it can be trusted.
type secretInSetError struct{ what string }

func (e *secretInSetError) Error() string {
	return "is " + e.what + ", which must not be in a key set"
}

func parseJWK(raw json.RawMessage, algorithm string) (publicKey, error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		return publicKey{}, errors.New("is not a JWK")
	}
	switch {
	case m.KTY == jwkset.KtyOct || m.K != "":
		return publicKey{}, &secretInSetError{"a symmetric key"}
	case m.D != "" || m.P != "" || m.Q != "" || m.DP != "" || m.DQ != "" || m.QI != "" ||
		len(m.OTH) > 0:
		return publicKey{}, &secretInSetError{"a private key"}
	case m.USE != "" && m.USE != jwkset.UseSig,
		len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify):
		return publicKey{}, errors.New("is not for signatures")
	case algorithm != "" && m.ALG != "" && string(m.ALG) != algorithm:
		return publicKey{}, fmt.Errorf("is for %.20q", string(m.ALG))
	}
	// no x5u: nothing is fetched for it
	bare := jwkset.JWKMarshal{KTY: m.KTY, CRV: m.CRV, X: m.X, Y: m.Y, N: m.N, E: m.E}
	parsed, err := jwkset.NewJWKFromMarshal(bare, jwkset.JWKMarshalOptions{},
		jwkset.JWKValidateOptions{SkipMetadata: true})
	if err != nil {
		return publicKey{}, err
	}
	key, err := newPublicKey(parsed.Key(), m.KID, m.KID != "")
	if err != nil {
		return publicKey{}, err
	}
	if alg := key.method.Alg(); (algorithm != "" && alg != algorithm) ||
		(m.ALG != "" && alg != string(m.ALG)) {
		return publicKey{}, fmt.Errorf("is for %s", alg)
	}
	return key, nil
}

func forAlgorithm(algorithm string) string {
	if algorithm == "" {
		return ""
	}
	return " by " + algorithm
}

// marshalJWKS writes keys as a JWK Set.
func marshalJWKS(keys []publicKey) ([]byte, error) {
	set := jwkset.JWKSMarshal{Keys: make([]jwkset.JWKMarshal, len(keys))}
	for i, k := range keys {
		jwk, err := jwkset.NewJWKFromKey(k.key, jwkset.JWKOptions{
			Metadata: jwkset.JWKMetadataOptions{ALG: jwkset.ALG(k.method.Alg()), KID: k.id,
				USE: jwkset.UseSig}})
		if err != nil {
			return nil, err
		}
		set.Keys[i] = jwk.Marshal()
	}
	return json.MarshalIndent(set, "", "  ")
}

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
		return fmt.Sprintf(`{"crv":"%s","kty":"EC","x":"%s","y":"%s"}`, k.Params().Name,
			base64url(x), base64url(y)), nil
	case *rsa.PublicKey:
		e := big.NewInt(int64(k.E)).Bytes()
		return fmt.Sprintf(`{"e":"%s","kty":"RSA","n":"%s"}`, base64url(e),
			base64url(k.N.Bytes())), nil
	default:
		return "", fmt.Errorf("a %T has no thumbprint", key)
	}
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

const (
	connectTimeout = 5 * time.Second
	maxHeaderBytes = 64 << 10
)

// fetcher returns a function that fetches the key set of a Config. It follows no redirects, accepts
// no compressed answer, and reads no more than the limit of a key set.
func fetcher(c Config) func(context.Context) ([]byte, error) {
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSHandshakeTimeout:    connectTimeout,
			TLSClientConfig:        &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true, // a small compressed answer could become huge
			DisableKeepAlives:      true, // fetches are minutes apart
		},
	}
	return func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.JWKSURL, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/jwk-set+json, application/json")
		resp, err := client.Do(req)
		if err != nil {
			return nil, withoutURL(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("was answered with %d", resp.StatusCode)
		}
		return readKeys(resp.Body)
	}
}

// withoutURL removes the URL from an error of package http: its query must not be logged.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// fileReader returns a function that reads a file of keys.
func fileReader(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if !info.Mode().IsRegular() { // reading a pipe could take forever
			return nil, errors.New("is not a regular file")
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readKeys(f)
	}
}

// readKeys reads all of r, up to maxKeysBytes.
func readKeys(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeysBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeysBytes {
		return nil, fmt.Errorf("has more than %d bytes", maxKeysBytes)
	}
	return text, nil
}

// withoutQuery returns a URL without its query, for people.
func withoutQuery(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.RawQuery = ""
	return u.String()
}
