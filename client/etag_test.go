package client

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A condition is sent with changes, and the ETag of an answer is read, also of one that a proxy
// compressed.
func TestETag(t *testing.T) {
	t.Parallel()
	var sent []string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Method+" "+r.Header.Get("If-Match")+r.Header.Get("If-None-Match"))
		if r.Header.Get("If-Match") == `"old"` {
			w.WriteHeader(412) // without a problem, as of a proxy
			return
		}
		w.Header().Set("ETag", `W/"now"`)
		writeJSON(w, 200, TaskType{Name: "t"})
	})
	c, etag := f.client(t), ""
	ctx := ReadETag(t.Context(), &etag)
	_, err := c.TaskType(IfMatch(ctx, `"old"`), "t")
	require.NoError(t, err, "it changes nothing")
	assert.Equal(t, `"now"`, etag)
	_, err = c.PutTaskType(IfMatch(ctx, etag), "t", TaskTypeSpec{})
	require.NoError(t, err)
	_, err = c.PutTaskType(IfNew(ctx), "t", TaskTypeSpec{})
	require.NoError(t, err)
	_, err = c.PutTaskType(IfMatch(ctx, `"old"`), "t", TaskTypeSpec{})
	assert.Equal(t, asyncflow.CodePrecondition, asyncflow.CodeOf(err))
	assert.Empty(t, etag)
	assert.Equal(t, []string{"GET ", `PUT "now"`, "PUT *", `PUT "old"`}, sent)
}
