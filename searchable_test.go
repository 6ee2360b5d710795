package asyncflow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Searchable fields are few, known, and named once; a refusal names the field and the limit.
func TestSearchableFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields []string
		want   string // of the error; "": none
	}{
		"none": {nil, ""},
		"all kinds": {[]string{"user", "tags", "flow_key", "metadata.order",
			"metadata.a.b"}, ""},
		"too many": {[]string{"user", "tags", "flow_key", "metadata.a", "metadata.b",
			"metadata.c"}, "has 6 fields; the limit is 5"},
		"unknown":    {[]string{"trace"}, `has "trace"; a field is user, tags, flow_key, or metadata.`},
		"empty":      {[]string{""}, `has ""`},
		"twice":      {[]string{"user", "tags", "user"}, `has "user" twice`},
		"no name":    {[]string{"metadata."}, `has "metadata."`},
		"long name":  {[]string{"metadata." + strings.Repeat("x", 41)}, "up to 40 letters"},
		"very long":  {[]string{strings.Repeat("ü", 1000)}, "…"},
		"a NUL":      {[]string{"metadata.a\x00b"}, "metadata. and the name"},
		"with space": {[]string{"metadata.a b"}, "metadata. and the name"},
	} {
		t.Run(name, func(t *testing.T) {
			err := asyncflow.TaskType{Name: "t", Stages: []asyncflow.Stage{{Name: "s"}},
				Searchable: c.fields}.WithDefaults().Validate()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "searchable has ")
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 500)
		})
	}
}
