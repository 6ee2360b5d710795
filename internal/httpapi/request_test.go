package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOtherMethods(t *testing.T) {
	b := setup(t)
	a := b.call("DELETE", "/v1/tasks", "")
	assert.Equal(t, 405, a.status)
	assert.Contains(t, a.header.Get("Allow"), "POST")
	assert.Equal(t, 200, b.callAs("", "HEAD", "/healthz", "").status)
}

// A compressed body is refused before it is decompressed: a small one could become huge.
func TestPackedBody(t *testing.T) {
	b := setup(t)
	b.pipe()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(`{"type":"pipe","context":"` + strings.Repeat("0", 1<<20) + `"}`))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	req, err := http.NewRequest("POST", b.url+"/v1/tasks", &packed)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	a := b.do(req)
	assert.Equal(t, 400, a.status)
	assert.Equal(t, "Content-Encoding", a.problem.Errors[0].Field)
}
