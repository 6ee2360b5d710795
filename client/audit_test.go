package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllAudit(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			writeJSON(w, 200, AuditList{Data: []AuditEntry{{ID: "3"}, {ID: "2"}}, NextCursor: "c"})
		case "c":
			writeJSON(w, 200, AuditList{Data: []AuditEntry{{ID: "1"}}})
		}
	})
	var ids []string
	since := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for e, err := range f.client(t).AllAudit(t.Context(),
		AuditParams{Since: since, Action: "task_type.put", Outcome: AuditDone, Limit: 2}) {
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
	assert.Equal(t, []string{"3", "2", "1"}, ids)
	const rest = "limit=2&outcome=done&since=2026-11-21T10%3A00%3A00Z"
	assert.Equal(t, []string{
		"GET /v1/audit?action=task_type.put&" + rest,
		"GET /v1/audit?action=task_type.put&cursor=c&" + rest,
	}, f.requests())
	_, err := f.client(t).Audit(t.Context(), AuditParams{Operator: true})
	require.NoError(t, err)
	assert.Equal(t, "GET /v1/audit/operator", f.requests()[2])
}

// An operator can find the call of an error by its request id.
func TestRequestIDOfAnError(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "abc")
		w.WriteHeader(500)
	})
	_, err := f.client(t, WithRetries(0)).Audit(t.Context(), AuditParams{})
	var answer *Error
	require.ErrorAs(t, err, &answer)
	assert.Equal(t, "abc", answer.RequestID())
}
