package document

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The value of a variable is data: it can't become YAML or another reference.
func TestExpandedOnce(t *testing.T) {
	t.Parallel()
	values := map[string]string{"A": "${B}", "B": "b", "C": "x\", url: \"evil", "EMPTY": ""}
	env := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	for text, want := range map[string]string{
		"":                 "",
		"plain $A {B}":     "plain $A {B}",
		"${A}-${B}${B}":    "${B}-bb",
		"$${B} $${":        "${B} ${",
		"a${EMPTY}z":       "az",
		"price: 5$":        "price: 5$",
		"$${A} and ${B} $": "${A} and b $",
	} {
		t.Run(text, func(t *testing.T) {
			got, err := expand(text, env)
			require.NoError(t, err, text)
			require.Equal(t, want, got, text)
		})
	}
	doc, err := Parse([]byte(`endpoints: [{type: a, stage: b, url: "https://h/", secret: "${C}"}]`),
		env)
	require.NoError(t, err)
	require.Equal(t, `x", url: "evil`, doc.Endpoints[0].Secret)
}
