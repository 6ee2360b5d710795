package client

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// There is a method of Client for each call of the API, or a reason why not.
func TestEveryCallHasAMethod(t *testing.T) {
	t.Parallel()
	without := map[string]string{
		"AnswerClaim":    "it is a worker's",
		"CompleteTask":   "it is a worker's",
		"DecideLink":     "it is for people",
		"ShowLink":       "it is for people",
		"FailTask":       "it is a worker's",
		"Heartbeat":      "it is a worker's",
		"ReleaseClaim":   "it is a worker's",
		"ReadInput":      "it is a worker's",
		"ReadOutput":     "it is a worker's",
		"ReportProgress": "it is a worker's",
		"SnoozeTask":     "it is a worker's",
		"TaskEvents":     "Watch reads the stream without the generated client",
		"StatsEvents":    "it is for pages that show counts as they change",
		"Docs":           "it is for people",
		"DocsFile":       "it is for people",
		"Metrics":        "it is for Prometheus",
		"Openapi":        "it describes the API",
		"OpenapiJSON":    "it describes the API",
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\bc\.api\.(\w+)`).FindAllSubmatch(text, -1) {
			used[strings.TrimSuffix(string(m[1]), "WithBody")] = true
		}
	}
	calls := reflect.TypeFor[api.ClientInterface]()
	require.Greater(t, calls.NumMethod(), 60)
	for i := range calls.NumMethod() {
		name := strings.TrimSuffix(calls.Method(i).Name, "WithBody")
		name = strings.TrimSuffix(name, "WithFormdataBody")
		require.NotEqual(t, used[name], without[name] != "", name)
	}
}
