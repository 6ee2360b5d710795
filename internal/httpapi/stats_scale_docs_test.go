package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/asyncflow/asyncflow/auth"
)

// The KEDA example of the documentation asks for something that is there: with its URL and a token
// of the scope read, its valueLocation is a number.
func TestKEDAExample(t *testing.T) {
	b := setup(t)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/thumbnails",
		`{"stages":[{"name":"inspect"},{"name":"resize"}]}`).status)
	require.Equal(t, 201,
		b.call("POST", "/v1/tasks", `{"type":"thumbnails","context":1}`).status)
	trigger := kedaTrigger(t)
	require.Equal(t, "metrics-api", trigger.Type)
	require.Equal(t, "bearer", trigger.Metadata["authMode"])
	u, err := url.Parse(trigger.Metadata["url"])
	require.NoError(t, err)
	for stage, want := range map[string]float64{"resize": 0, "inspect": 1} {
		query := u.Query()
		query.Set("stage", stage)
		a := b.callAs(b.newToken("acme", auth.ScopeRead), "GET", u.Path+"?"+query.Encode(), "")
		require.Equal(t, 200, a.status)
		var got map[string]any
		require.NoError(t, json.Unmarshal(a.body, &got))
		assert.Equal(t, want, got[trigger.Metadata["valueLocation"]], stage)
	}
}

// keda is the part of a ScaledObject that asks for a number.
type keda struct {
	Kind string
	Spec struct {
		Triggers []kedaAsks
	}
}

type kedaAsks struct {
	Type     string
	Metadata map[string]string
}

func kedaTrigger(t *testing.T) kedaAsks {
	t.Helper()
	page, err := os.ReadFile("../../docs/autoscaling.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, example)
	for decoder := yaml.NewDecoder(bytes.NewReader(example[1])); ; {
		var doc keda
		require.NoError(t, decoder.Decode(&doc), "a ScaledObject")
		if doc.Kind == "ScaledObject" {
			require.Len(t, doc.Spec.Triggers, 1)
			return doc.Spec.Triggers[0]
		}
	}
}
