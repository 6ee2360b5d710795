package thumbnails_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

type completion struct {
	Output struct {
		Image      string `json:"image"`
		Thumbnails []struct {
			File   string `json:"file"`
			Width  int    `json:"width"`
			Height int    `json:"height"`
			Bytes  int64  `json:"bytes"`
		} `json:"thumbnails"`
	} `json:"output"`
}

func TestResize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for image, sizes := range map[string][][2]int{
		"harbour.jpg": {{256, 160}, {64, 40}},
		"tiles.png":   {{192, 256}, {48, 64}},
		"moire.gif":   {{256, 192}, {64, 48}},
	} {
		t.Run(image, func(t *testing.T) {
			require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", image).status)
			var got completion
			require.NoError(t, json.Unmarshal([]byte(b.asyncflow.next(t, "complete").body), &got))
			require.Equal(t, image, got.Output.Image)
			require.Len(t, got.Output.Thumbnails, 2)
			for i, th := range got.Output.Thumbnails {
				require.Equal(t, image+[]string{".256.png", ".64.png"}[i], th.File)
				require.Equal(t, sizes[i], [2]int{th.Width, th.Height})
				requirePNG(t, filepath.Join(b.out, th.File), th.Width, th.Height, th.Bytes)
			}
		})
	}
	require.Len(t, files(t, b.out), 6)
}

// requirePNG compares the file on disk with the report about it.
func requirePNG(t *testing.T, name string, width, height int, size int64) {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	info, err := file.Stat()
	require.NoError(t, err)
	require.Equal(t, size, info.Size())
	m, err := png.Decode(file)
	require.NoError(t, err)
	require.Equal(t, [2]int{width, height}, [2]int{m.Bounds().Dx(), m.Bounds().Dy()})
	colours := map[any]bool{}
	for x := range width {
		colours[m.At(x, height/2)] = true
	}
	require.Greater(t, len(colours), 3, "%s shows nothing", name)
}

func TestResizeKeepsFolders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.images, "a", "b"), 0o755))
	require.NoError(t,
		os.Rename(filepath.Join(b.images, "tiles.png"),
			filepath.Join(b.images, "a", "b", "tiles.png")))
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "a/b/tiles.png").status)
	require.Contains(t, b.asyncflow.next(t, "complete").body, `"a/b/tiles.png.64.png"`)
	require.Equal(t, []string{"tiles.png.256.png", "tiles.png.64.png"},
		files(t, filepath.Join(b.out, "a", "b")))
}

// The same task is delivered several times, also concurrently: the files are the same, and all
// reports are equal.
func TestResizeDelivered(t *testing.T) {
	t.Parallel()
	const times = 6
	b := setup(t, func(c *thumbnails.Config) { c.Parallel = times })
	var posts sync.WaitGroup
	for range times {
		posts.Go(func() { _ = b.deliver(t, "resize", "small.png") })
	}
	posts.Wait()
	first := b.asyncflow.next(t, "complete")
	for range times - 1 {
		require.Equal(t, first, b.asyncflow.next(t, "complete"))
	}
	require.Equal(t, []string{"small.png.256.png", "small.png.64.png"}, files(t, b.out),
		"no temporary file is left")
	var got completion
	require.NoError(t, json.Unmarshal([]byte(first.body), &got))
	for _, th := range got.Output.Thumbnails {
		requirePNG(t, filepath.Join(b.out, th.File), th.Width, th.Height, th.Bytes)
	}
}

// A task that no retry can help is accepted, and failed for good by a report.
func TestResizeFailsForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	whole, err := os.ReadFile(filepath.Join(b.images, "tiles.png"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.images, "cut.png"), whole[:len(whole)/2],
		0o644))
	require.NoError(t,
		os.WriteFile(filepath.Join(b.images, "bomb.png"), claiming(whole, 60_000, 60_000), 0o644))
	require.NoError(t,
		os.WriteFile(filepath.Join(b.images, "wide.png"), claiming(whole, 50_000_001, 1), 0o644))
	for image, want := range map[string]string{
		"none.jpg":         "no such file",
		"../../etc/passwd": "path escapes",
		"cut.png":          "decode cut.png",
		"bomb.png":         "60000 × 60000 pixels",
		"wide.png":         "50000001 × 1 pixels",
	} {
		t.Run(image, func(t *testing.T) {
			require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", image).status)
			got := b.asyncflow.next(t, "fail").body
			require.Contains(t, got, want)
			require.Contains(t, got, `"retryable":false`)
		})
	}
	require.Empty(t, files(t, b.out))
}

// claiming returns a PNG with a header that claims another size than the image's.
func claiming(whole []byte, width, height uint32) []byte {
	forged := append([]byte(nil), whole...)
	header := forged[12:29] // after signature and length: the chunk's name and its 13 bytes
	binary.BigEndian.PutUint32(header[4:], width)
	binary.BigEndian.PutUint32(header[8:], height)
	binary.BigEndian.PutUint32(forged[29:], crc32.ChecksumIEEE(header))
	return forged
}

func TestResizeMaxPixels(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *thumbnails.Config) { c.MaxPixels = 960 * 1280 })
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "tiles.png").status)
	b.asyncflow.next(t, "complete")
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "hills.jpg").status)
	require.Contains(t, b.asyncflow.next(t, "fail").body, "1600 × 900 pixels")
}

// A folder that can't be written to may be repaired, so the failure is retryable.
func TestResizeFailsForNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.Mkdir(filepath.Join(b.out, "small.png.256.png"), 0o755))
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	require.Contains(t, b.asyncflow.next(t, "fail").body, `"retryable":true`)
	require.Equal(t, []string{"small.png.256.png"}, files(t, b.out), "no temporary file is left")
}

func TestResizeQueueFull(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *thumbnails.Config) { c.Parallel, c.Queue = 1, 1 })
	blocked := make(chan struct{})
	release := sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(release) // a failure must not leave the server waiting
	b.asyncflow.answers(func(http.ResponseWriter, *http.Request) { <-blocked })
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	b.asyncflow.next(t, "complete") // the one goroutine waits for the answer to this
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	full := b.deliver(t, "resize", "small.png")
	require.Equal(t, http.StatusServiceUnavailable, full.status)
	require.Equal(t, "1", full.header.Get("Retry-After"))
	release()
	require.Contains(t, b.asyncflow.next(t, "complete").body, "small.png")
	again := full
	for again.status == full.status { // a delivery ends only after the answer to its report
		again = b.deliver(t, "resize", "small.png")
	}
	require.Equal(t, http.StatusAccepted, again.status)
	require.Contains(t, b.asyncflow.next(t, "complete").body, "small.png")
}

// Close completes the accepted deliveries and refuses later ones.
func TestClose(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *thumbnails.Config) { c.Parallel = 1 })
	for range 4 {
		require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	}
	b.close(t)
	for range 4 {
		b.asyncflow.next(t, "complete")
	}
	require.Empty(t, b.asyncflow.reports)
	for _, stage := range []string{"resize", "inspect"} {
		require.Equal(t, http.StatusServiceUnavailable, b.deliver(t, stage, "small.png").status)
	}
	b.close(t) // again does nothing
}

// A Close interrupts the work at the end of its context, and says so.
func TestCloseCutShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.asyncflow.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	b.asyncflow.next(t, "complete")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, b.worker.Close(ctx), context.Canceled)
	b.close(t)
}
