package thumbnails

import (
	"context"

	"github.com/asyncflow/asyncflow/worker"
)

// boxes are the edges, in pixels, of the squares into which thumbnails fit.
var boxes = []int{256, 64}

// thumbnail is a file written for an image.
type thumbnail struct {
	File   string `json:"file"` // path inside the folder of thumbnails
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Bytes  int    `json:"bytes"`
}

// resized is the output of the stage "resize".
type resized struct {
	Image      string      `json:"image"`
	Thumbnails []thumbnail `json:"thumbnails"`
}

// resize is the handler of the stage "resize". Its deliveries are accepted at once (202). It waits
// for a free slot, and its return value is reported. A task that is delivered twice is resized
// twice: the same bytes replace the same files.
func (w *Worker) resize(ctx context.Context, t worker.Task[photo]) (resized, error) {
	name, err := t.Context.name()
	if err != nil {
		return resized{}, worker.Fail(err)
	}
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done(): // cancelled, or too late
		return resized{}, ctx.Err()
	}
	out, err := w.render(name)
	if err != nil {
		return resized{}, failure(err)
	}
	return out, nil
}

// render writes the thumbnails of an image, the largest first.
func (w *Worker) render(name string) (resized, error) {
	out := resized{Image: name}
	src, err := decode(w.images, name, w.maxPixels)
	if err != nil {
		return out, err
	}
	for _, box := range boxes {
		t, err := writeThumbnail(w.out, name, src, box)
		if err != nil {
			return out, err
		}
		out.Thumbnails = append(out.Thumbnails, t)
	}
	return out, nil
}
