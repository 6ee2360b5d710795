package thumbnails_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.Mkdir(filepath.Join(b.images, "town"), 0o755))
	require.NoError(t,
		os.Rename(filepath.Join(b.images, "plasma.jpg"),
			filepath.Join(b.images, "town", "plasma.jpg")))
	webp, err := base64.StdEncoding.DecodeString("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.images, "dot.webp"), webp, 0o644))
	for image, want := range map[string]picture{
		"dot.webp":              {"dot.webp", "webp", 1, 1, 34},
		"harbour.jpg":           {"harbour.jpg", "jpeg", 1600, 1000, 151028},
		"tiles.png":             {"tiles.png", "png", 960, 1280, 47102},
		"moire.gif":             {"moire.gif", "gif", 800, 600, 61291},
		"town/../tiles.png":     {"tiles.png", "png", 960, 1280, 47102},
		"town/plasma.jpg":       {"town/plasma.jpg", "jpeg", 1280, 800, 51933},
		"./harbour.jpg":         {"harbour.jpg", "jpeg", 1600, 1000, 151028},
		"town//../moire.gif":    {"moire.gif", "gif", 800, 600, 61291},
		"town/./../harbour.jpg": {"harbour.jpg", "jpeg", 1600, 1000, 151028},
	} {
		t.Run(image, func(t *testing.T) {
			got := b.deliver(t, "inspect", image)
			require.Equal(t, http.StatusOK, got.status, got.body)
			output, err := json.Marshal(map[string]picture{"output": want})
			require.NoError(t, err)
			require.JSONEq(t, string(output), got.body)
			require.Equal(t, "application/json", got.header.Get("Content-Type"))
		})
	}
}

// picture is the output of the stage "inspect".
type picture struct {
	Image  string `json:"image"`
	Format string `json:"format"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Bytes  int    `json:"bytes"`
}

// A task that no other attempt can help is answered with the outcome "fail".
func TestInspectFailsForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outside := filepath.Join(t.TempDir(), "outside.png")
	sample, err := os.ReadFile(filepath.Join(b.images, "tiles.png"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(outside, sample, 0o644))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.images, "link.png")))
	require.NoError(t, os.WriteFile(filepath.Join(b.images, "notes.txt"), []byte("no image"),
		0o644))
	relative, err := filepath.Rel(b.images, outside)
	require.NoError(t, err)
	for name, c := range map[string]struct{ context, want any }{
		"missing":           {map[string]any{"image": "none.jpg"}, "no such file"},
		"no image file":     {map[string]any{"image": "notes.txt"}, "unknown format"},
		"the folder itself": {map[string]any{"image": "."}, "is not a file"},
		"escape":            {map[string]any{"image": "../../etc/passwd"}, "path escapes"},
		"escape to an image": {map[string]any{"image": filepath.ToSlash(relative)},
			"path escapes"},
		"absolute":            {map[string]any{"image": outside}, "path escapes"},
		"escape by a symlink": {map[string]any{"image": "link.png"}, "path escapes"},
		"no image":            {map[string]any{}, "the context must be"},
		"no object":           {[]int{1}, "the context can't be read"},
		"no text":             {map[string]any{"image": 7}, "the context can't be read"},
		"null":                {nil, "the context must be"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.post(t, "inspect", signed(t, now(), b.envelope("inspect", c.context)))
			require.Equal(t, http.StatusOK, got.status)
			require.Contains(t, got.body, `"outcome":"fail"`)
			require.Contains(t, got.body, c.want)
			require.NotContains(t, got.body, b.images, "an answer doesn't tell where the folder is")
		})
	}
}
