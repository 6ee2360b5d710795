package cursor

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A cursor that is read holds the key that was written; the first page is without one.
func TestCursors(t *testing.T) {
	t.Parallel()
	l := Of("list", struct{}{})
	assert.Empty(t, l.Write(false, "a"))
	assert.Empty(t, l.WriteNumber(0))
	key, err := l.Read(l.Write(true, "mail", "send"), 2)
	require.NoError(t, err)
	assert.Equal(t, []string{"mail", "send"}, key)
	key, err = l.Read("", 2)
	require.NoError(t, err)
	assert.Equal(t, []string{"", ""}, key)
	name, err := l.ReadName(l.Write(true, "mail"))
	require.NoError(t, err)
	assert.Equal(t, "mail", name)
	number, err := l.ReadNumber(l.WriteNumber(1 << 40))
	require.NoError(t, err)
	assert.EqualValues(t, 1<<40, number)
	want := store.Place{
		At: time.Date(2026, 11, 21, 10, 0, 0, 1000, time.UTC),
		ID: "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c",
	}
	place, err := l.ReadPlace(l.Write(true, PlaceKey(want)...))
	require.NoError(t, err)
	assert.Equal(t, want, place)
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	const id = "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1c"
	l := Of("list", struct{}{})
	of := func(text string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(string(l) + " " + text))
	}
	for _, bad := range []string{"%", of("a b c"), of(" "), of("a "), "\n"} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			_, err := l.Read(bad, 2)
			assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		})
	}
	for _, bad := range []string{"%", of("Mail"), of("a b")} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			_, err := l.ReadName(bad)
			assert.Error(t, err)
		})
	}
	for _, bad := range []string{"%", of("0"), of("-1"), of("a b"), of("zzzzzzzzzzzzzzzz")} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			_, err := l.ReadNumber(bad)
			assert.Error(t, err)
		})
	}
	for _, bad := range []string{"%", of("1 x"), of("0 " + id), of("zzzzzzzzzzzz " + id), of(id)} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			_, err := l.ReadPlace(bad)
			assert.Error(t, err)
		})
	}
}

// A list takes no cursor of another list, nor of itself with another filter.
func TestCursorsOfOthers(t *testing.T) {
	t.Parallel()
	type params struct {
		Type   string    `json:"type"`
		Cursor string    `json:"cursor,omitempty"`
		Limit  int       `json:"limit,omitempty"`
		Since  time.Time `json:"since,omitzero"`
	}
	cursor := Of("tasks", params{Type: "mail"}).WriteNumber(7)
	for name, other := range map[string]List{
		"another list":   Of("audit", params{Type: "mail"}),
		"another filter": Of("tasks", params{Type: "post"}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := other.ReadNumber(cursor)
			assert.ErrorContains(t, err, "is not a next_cursor of this list with this filter", name)
		})
	}
	same := params{Type: "mail", Cursor: cursor, Limit: 5, Since: time.Unix(1, 0)}
	number, err := Of("tasks", same).ReadNumber(cursor)
	require.NoError(t, err)
	assert.EqualValues(t, 7, number)
}
