package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	t.Parallel()
	want := TaskCount{Count: 10_000}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, want) })
	n, err := f.client(t).Count(t.Context(), ListParams{Type: "t", Status: StatusFailed, Stage: "s",
		Error: "a b", Key: "k", Since: time.Unix(1, 0).UTC(), Until: time.Unix(2, 5).UTC(),
		Parent: "p.1.1", Text: "x", Limit: 7, Cursor: "next"})
	require.NoError(t, err)
	require.Equal(t, want, n)
	require.Equal(t, []string{"GET /v1/tasks/count?error=a+b&key=k&parent=p.1.1" +
		"&since=1970-01-01T00%3A00%3A01Z&stage=s&status=failed&text=x&type=t" +
		"&until=1970-01-01T00%3A00%3A02.000000005Z"}, f.requests())
}
