package document

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A document is refused with its problems, each in a line, or it keeps the rules.
func FuzzDocument(f *testing.F) {
	values := map[string]string{"URL": "https://w.example.com", "LIMIT": "7", "EMPTY": ""}
	env := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 64<<10 {
			return
		}
		start := time.Now()
		doc, err := Parse(raw, env)
		require.Less(t, time.Since(start), 30*time.Second)
		if err != nil {
			var problems *Error
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems.Fields)
			for _, p := range problems.Fields {
				require.NotEmpty(t, p.Message)
			}
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			return
		}
		require.Empty(t, doc.check())
	})
}
