package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
)

// seals encrypt what a cookie holds (AES-256-GCM, a random nonce each). Their keys are derived from
// the node's secrets (HKDF-SHA-256, RFC 5869): the first seals, and each of them opens.
type seals []cipher.AEAD

// use is what a cookie is for. A cookie for one use can't be opened for another.
type use string

const (
	useSession use = "session"
	useLogin   use = "login"
)

// sealOverhead is what a seal adds to its content, in bytes: a nonce and a tag.
const sealOverhead = 12 + 16

func newSeals(secret []byte, old [][]byte) (seals, error) {
	var all seals
	for _, s := range slices.Concat([][]byte{secret}, old) {
		key, err := hkdf.Key(sha256.New, s, nil, "asyncflow console cookie v1", 32)
		if err != nil {
			return nil, fmt.Errorf("derive the console's key: %w", err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		one, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// seal returns a text as the value of a cookie.
func (s seals) seal(text string, purpose use) string {
	return cookieText.EncodeToString(s[0].Seal(nil, nil, []byte(text), []byte(purpose)))
}

// open returns the text that seal got. ok is false if no secret of this node sealed it for that
// use.
func (s seals) open(value string, purpose use) (text string, ok bool) {
	sealed, err := cookieText.DecodeString(value)
	if err != nil {
		return "", false
	}
	for _, one := range s {
		if text, err := one.Open(nil, nil, sealed, []byte(purpose)); err == nil {
			return string(text), true
		}
	}
	return "", false
}

// cookieText writes bytes in the characters that a cookie may have. A value has one spelling.
var cookieText = base64.RawURLEncoding.Strict()
