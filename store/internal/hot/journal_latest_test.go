package hot

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// What a node keeps of a stage's names is short, however many they are, and changes with them.
func TestOutputKindIsShort(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	mapping := map[string]string{}
	for n := range asyncflow.MaxStageMappings {
		kind := &config.Type{StoredType: config.StoredType{
			TaskType: asyncflow.TaskType{StageMapping: mapping}}}
		text := outputKind(kind, "now")
		require.Equal(t, text, outputKind(kind, "now"))
		require.LessOrEqual(t, len(text), 64)
		require.False(t, seen[text])
		seen[text] = true
		mapping[fmt.Sprintf("before-%033d", n)] = "now"
	}
}
