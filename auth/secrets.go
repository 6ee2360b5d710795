package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

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
			return nil, fmt.Errorf("the secret in line %d must have at least %d bytes, not %d", number,
				MinSecretBytes, len(secret))
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
