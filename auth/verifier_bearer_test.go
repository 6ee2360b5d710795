package auth

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Bearer abc.d-e_f.g", "bearer abc.d-e_f.g",
		"BEARER   abc.d-e_f.g",
		" Bearer abc.d-e_f.g "} {
		t.Run(fmt.Sprintf("%q", header), func(t *testing.T) {
			token, err := Bearer(header)
			require.NoError(t, err)
			require.Equal(t, "abc.d-e_f.g", token)
		})
	}
	for _, header := range []string{"", "  "} {
		t.Run(fmt.Sprintf("%q", header), func(t *testing.T) {
			_, err := Bearer(header)
			requireRefused(t, err, "no token: send Authorization: Bearer")
		})
	}
	for _, header := range []string{"Bearer", "Bearer ", "abc", "Basic abc", "Bearerabc",
		"Bearer a b",
		"Bearer a, Bearer b", "Bearer\tabc", "Bearer a\r\nX: y"} {
		t.Run(fmt.Sprintf("%q", header), func(t *testing.T) {
			token, err := Bearer(header)
			requireRefused(t, err, "not of the form")
			require.Empty(t, token)
		})
	}
}
