package cursor

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A cursor that is read has the key that was written; the first page has none.
func TestCursors(t *testing.T) {
	t.Parallel()
	assert.Empty(t, Write(false, "a"))
	assert.Empty(t, WriteNumber(0))
	key, err := Read(Write(true, "mail", "send"), 2)
	require.NoError(t, err)
	assert.Equal(t, []string{"mail", "send"}, key)
	key, err = Read("", 2)
	require.NoError(t, err)
	assert.Equal(t, []string{"", ""}, key)
	name, err := ReadName(Write(true, "mail"))
	require.NoError(t, err)
	assert.Equal(t, "mail", name)
	number, err := ReadNumber(WriteNumber(1 << 40))
	require.NoError(t, err)
	assert.EqualValues(t, 1<<40, number)
	want := store.Place{
		At: time.Date(2026, 11, 21, 10, 0, 0, 1000, time.UTC),
		ID: "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c",
	}
	place, err := ReadPlace(Write(true, PlaceKey(want)...))
	require.NoError(t, err)
	assert.Equal(t, want, place)
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	const id = "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c"
	of := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, bad := range []string{"%", of("a b c"), of(" "), of("a "), "\n"} {
		_, err := Read(bad, 2)
		assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), "%q", bad)
	}
	for _, bad := range []string{"%", of("Mail"), of("a b")} {
		_, err := ReadName(bad)
		assert.Error(t, err, bad)
	}
	for _, bad := range []string{"%", of("0"), of("-1"), of("a b"), of("zzzzzzzzzzzzzzzz")} {
		_, err := ReadNumber(bad)
		assert.Error(t, err, bad)
	}
	for _, bad := range []string{"%", of("1 x"), of("0 " + id), of("zzzzzzzzzzzz " + id), of(id)} {
		_, err := ReadPlace(bad)
		assert.Error(t, err, bad)
	}
}
