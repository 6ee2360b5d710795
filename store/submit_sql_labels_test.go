package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A task that is submitted by SQL gets its labels, and is found by them.
func TestSQLLabels(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	labels := asyncflow.Labels{User: "ada 'x' \"y\"", Tags: []string{"eu", "a:b/c.d-e_1"},
		Metadata: map[string]string{"order": "4711", "shop.id": ""},
		Trace:    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	doc, err := json.Marshal(labels)
	require.NoError(t, err)
	id, err := b.bySQL(b.app(), `'pipe', '1', labels => '`+
		strings.ReplaceAll(string(doc), "'", "''")+`'`)
	require.NoError(t, err)
	require.Equal(t, labels, b.task(id).Options.Labels)
	found, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 9,
		Labels: store.LabelFilter{User: labels.User}})
	require.NoError(t, err)
	require.Len(t, found, 1)
	plain, err := b.bySQL(b.app(), `'pipe', '1', labels => '{}'`)
	require.NoError(t, err)
	require.True(t, b.task(plain).Options.IsZero())
}

// What the API refuses of labels, SQL refuses, too.
func TestSQLRefusesLabels(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	many := strings.TrimSuffix(strings.Repeat(`"t%",`, 17), ",")
	for i := range 17 {
		many = strings.Replace(many, "%", string(rune('a'+i)), 1)
	}
	for doc, want := range map[string]string{
		`[]`:                       "must be an object",
		`null`:                     "must be an object",
		`{"users": "x"}`:           "labels.users is not known",
		`{"user": ""}`:             "labels.user is 0 bytes long",
		`{"user": 7}`:              "labels.user must be a string",
		`{"user": null}`:           "labels.user must be a string",
		`{"tags": "x"}`:            "labels.tags must be an array",
		`{"tags": null}`:           "labels.tags must be an array",
		`{"tags": [1]}`:            "labels.tags must have words",
		`{"tags": [null]}`:         "labels.tags must have words",
		`{"tags": ["a b"]}`:        "labels.tags must have words",
		`{"tags": ["-a"]}`:         "labels.tags must have words",
		`{"tags": ["a", "a"]}`:     "labels.tags has a tag twice",
		`{"tags": [` + many + `]}`: "labels.tags has 17 entries; the limit is 16",
		`{"tags": ["` + strings.Repeat("x", 65) + `"]}`: "labels.tags must have words",
		`{"user": "` + strings.Repeat("x", 256) + `"}`:  "labels.user is 256 bytes long",
		`{"metadata": []}`:                                        "labels.metadata must be an object",
		`{"metadata": {"a": 1}}`:                                  "labels.metadata must have strings",
		`{"metadata": {"a": null}}`:                               "labels.metadata must have strings",
		`{"metadata": {"": "x"}}`:                                 "labels.metadata must have names",
		`{"metadata": {"a": "x", "a": "y"}}`:                      "labels.metadata has a name twice",
		`{"metadata": {"a": "` + strings.Repeat("x", 256) + `"}}`: "labels.metadata must have strings",
		`{"trace": "00-0"}`:                                       "labels.trace must be a W3C traceparent",
		`{"trace": "00-` + strings.Repeat("0", 32) + `-00f067aa0ba902b7-01"}`: "labels.trace must be",
		`{"trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-` + strings.Repeat("0", 16) +
			`-01"}`: "labels.trace must be",
		`{"user": "` + strings.Repeat(" ", 2100) + `"}`: "labels has 2112 bytes; the limit is 2048",
	} {
		t.Run(doc[:min(len(doc), 40)], func(t *testing.T) {
			err := b.sqlRefusal(app, `'pipe', '1', labels => '`+doc+`'`)
			assert.Equal(t, []string{"22023", "invalid_argument", "labels"},
				[]string{err.Code, err.Detail, err.ColumnName})
			assert.Contains(t, err.Message, want)
		})
	}
	both := b.sqlRefusal(app, `'pipe', '1', priority => -1, labels => '{"user": ""}'`)
	assert.Contains(t, both.Message, "; labels.user is 0 bytes long")
}
