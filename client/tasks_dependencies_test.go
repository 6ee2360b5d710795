package client

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dependency is on a task by its id, or by its type and key.
func TestDependencies(t *testing.T) {
	t.Parallel()
	byID, err := OnTask("invoice.1.17")
	require.NoError(t, err)
	byKey := OnKey("upload", "invoice-17")
	byKey.OnFailure = "run"
	doc, err := json.Marshal([]Dependency{byID, byKey})
	require.NoError(t, err)
	require.JSONEq(t, `[{"task": "invoice.1.17"},
		{"type": "upload", "key": "invoice-17", "on_failure": "run"}]`, string(doc))
	_, err = OnTask("invoice")
	require.Error(t, err)
}
