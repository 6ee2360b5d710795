package asyncflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// many returns n entries of metadata with values of a length.
func many(n, length int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("n%d", i)] = strings.Repeat("v", length)
	}
	return all
}

func TestLabels(t *testing.T) {
	tags := make([]string, asyncflow.MaxTags+1)
	for i := range tags {
		tags[i] = fmt.Sprint("t", i)
	}
	for name, c := range map[string]struct {
		labels asyncflow.Labels
		field  string // "": they are valid
	}{
		"none": {},
		"all": {labels: asyncflow.Labels{User: "Ünal 17", Tags: []string{"eu", "a/b:c.d-e_f"},
			Metadata: map[string]string{"order": "4711", "empty": ""}, Trace: trace}},
		"as many as may be": {labels: asyncflow.Labels{Tags: tags[1:], Metadata: many(16, 50)}},
		"long user":         {asyncflow.Labels{User: strings.Repeat("u", 256)}, "user"},
		"NUL":               {asyncflow.Labels{User: "a\x00b"}, "user"},
		"no UTF-8":          {asyncflow.Labels{Metadata: map[string]string{"a": "\xff"}}, "metadata.a"},
		"many tags":         {asyncflow.Labels{Tags: tags}, "tags"},
		"a tag twice":       {asyncflow.Labels{Tags: []string{"a", "b", "a"}}, "tags"},
		"a comma":           {asyncflow.Labels{Tags: []string{"a,b"}}, "tags"},
		"an empty tag":      {asyncflow.Labels{Tags: []string{""}}, "tags"},
		"a long tag":        {asyncflow.Labels{Tags: []string{strings.Repeat("t", 65)}}, "tags"},
		"many entries":      {asyncflow.Labels{Metadata: many(17, 1)}, "metadata"},
		"a long value":      {asyncflow.Labels{Metadata: many(1, 256)}, "metadata.n0"},
		"a bad name":        {asyncflow.Labels{Metadata: map[string]string{"a=b": ""}}, "metadata"},
		"a long name": {asyncflow.Labels{Metadata: map[string]string{
			strings.Repeat("n", 41): ""}}, "metadata"},
		"too long together": {asyncflow.Labels{Metadata: many(16, 120)}, "metadata"},
		"a zero trace": {asyncflow.Labels{Trace: "00-" + strings.Repeat("0", 32) +
			"-00f067aa0ba902b7-01"}, "trace"},
		"a zero span": {asyncflow.Labels{Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-" +
			strings.Repeat("0", 16) + "-01"}, "trace"},
		"another version": {asyncflow.Labels{Trace: "01" + trace[2:]}, "trace"},
		"two lines":       {asyncflow.Labels{Trace: trace + "\n"}, "trace"},
	} {
		t.Run(name, func(t *testing.T) {
			task := asyncflow.NewTask{Type: "mail", Context: json.RawMessage(`1`),
				Options: asyncflow.Options{Labels: c.labels}}
			err := task.Validate(time.Now(), 100)
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var known *asyncflow.Error
			require.ErrorAs(t, err, &known)
			assert.Equal(t, c.field, known.Fields[0].Field)
		})
	}
}

// A task without labels is stored as before, and the options of one with as many as may be stay
// below the size by which children are recognised.
func TestLabelsInOptions(t *testing.T) {
	doc, err := json.Marshal(asyncflow.Options{Key: "k"})
	require.NoError(t, err)
	assert.Equal(t, `{"key":"k"}`, string(doc))
	assert.True(t, asyncflow.Options{}.IsZero())
	labelled := asyncflow.Options{Labels: asyncflow.Labels{User: "u"}}
	assert.False(t, labelled.IsZero())
	doc, err = json.Marshal(labelled)
	require.NoError(t, err)
	assert.Equal(t, `{"user":"u"}`, string(doc))
}
