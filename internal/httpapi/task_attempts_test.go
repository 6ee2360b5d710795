package httpapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// The outputs of a whole journal are in no answer: they come in pages.
func TestAttemptsOfAnyLengthAreAnsweredInPages(t *testing.T) {
	b := setup(t)
	const n, each = 60, 250 << 10 // 15 MB
	path := "/v1/tasks/" + b.journal(n, each) + "/attempts"
	short := b.call("GET", path, "")
	page := read[api.AttemptList](b, 200, short)
	assert.Len(t, page.Data, n)
	assert.Less(t, len(short.body), n*1024)
	assert.Nil(t, page.Data[0].Output)
	assert.Equal(t, each+2, page.Data[0].OutputBytes)
	assert.True(t, strings.HasPrefix(page.Data[0].OutputExcerpt, `"xxx`))
	seen := 0
	for cursor := ""; ; {
		a := b.call("GET", path+"?outputs=true&cursor="+cursor, "")
		page := read[api.AttemptList](b, 200, a)
		require.Less(t, len(a.body), store.PageBytes+each+64<<10)
		for _, one := range page.Data {
			seen++
			require.Equal(t, seen, one.Seq)
			require.Len(t, one.Output, each+2)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	assert.Equal(t, n, seen)
	for _, bad := range []string{"?cursor=x", "?cursor=" + base64Of("99999"), "?cursor=" +
		base64Of("-1"), "?limit=501", "?outputs=maybe"} {
		assert.Equal(t, 400, b.call("GET", path+bad, "").status, bad)
	}
}

// journal gives a new task n attempts with outputs of the given size in bytes, and returns its id.
func (b *bundle) journal(n, bytes int) string {
	b.t.Helper()
	b.pipe()
	id, _ := b.submitOne()
	parsed, err := asyncflow.ParseTaskID(id)
	require.NoError(b.t, err)
	_, err = b.db.Exec(
		b.t.Context(),
		`INSERT INTO tenant_acme.journal_1 (type, id, seq, at, stage, attempt, outcome, output)
		SELECT 1, $1::bigint, n, now(), 'first', n, 'failed', to_json(repeat('x', $3))
		FROM generate_series(1, $2::int) n`,
		parsed.Number,
		n,
		bytes,
	)
	require.NoError(b.t, err)
	return id
}
