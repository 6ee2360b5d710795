package thumbnails_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

func TestWriteSamples(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "if-need-be")
	names, err := thumbnails.WriteSamples(dir)
	require.NoError(t, err)
	require.Len(t, names, 8)
	require.True(t, slices.IsSorted(names))
	require.Equal(t, names, files(t, dir))

	kept := filepath.Join(dir, names[0])
	require.NoError(t, os.WriteFile(kept, []byte("mine"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(dir, names[1])))
	again, err := thumbnails.WriteSamples(dir)
	require.NoError(t, err)
	require.Equal(t, names, again)
	require.Equal(t, names, files(t, dir))
	data, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"name: thumbnails", "${THUMBNAILS_URL}/inspect",
		"${THUMBNAILS_URL}/resize", "${THUMBNAILS_SECRET}"} {
		require.Contains(t, string(thumbnails.Document), part)
	}
}
