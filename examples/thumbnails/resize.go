package thumbnails

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// boxes are the edges, in pixels, of the squares that thumbnails fit in.
var boxes = []int{256, 64}

// processingTime bounds the work on a delivery that tells no deadline.
const processingTime = 5 * time.Minute

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

// resize accepts a delivery of the stage "resize" with 202 and works on it in
// the background; with the queue full, or the worker closing, it answers 503.
func (w *Worker) resize(rw http.ResponseWriter, r *http.Request) {
	d, ok := w.accept(rw, r, "resize")
	if !ok {
		return
	}
	if d.Deadline.IsZero() {
		d.Deadline = time.Now().Add(processingTime)
	}
	if !w.pool.try(func() { w.process(d) }) {
		busy(rw)
		return
	}
	rw.WriteHeader(http.StatusAccepted)
}

// busy asks asyncflow to slow down and to come back in a second.
func busy(rw http.ResponseWriter) {
	rw.Header().Set("Retry-After", "1")
	refuse(rw, http.StatusServiceUnavailable, "busy")
}

// process makes the thumbnails of an accepted delivery and reports how that
// went. A delivery that arrives twice is processed twice: the same files are
// replaced by the same bytes, and the second report says the same.
func (w *Worker) process(d delivery) {
	ctx, cancel := context.WithDeadline(w.ctx, d.Deadline)
	defer cancel()
	start := time.Now()
	log := w.log.With("task", d.TaskID, "attempt", d.Attempt, "image", d.image)
	output, err := w.render(ctx, d.image)
	if err != nil {
		log = log.With("failure", err)
	}
	reported := w.report(ctx, d.Callback, output, err)
	log = log.With("duration", time.Since(start).Round(time.Millisecond))
	switch {
	case reported == nil:
		log.Info("resized")
	case errors.Is(reported, errTooLate):
		log.Warn("resized too late; result dropped")
	default:
		log.Error("resize not reported", "error", reported)
	}
}

// render writes the thumbnails of an image, the largest first.
func (w *Worker) render(ctx context.Context, name string) (resized, error) {
	out := resized{Image: name}
	if err := ctx.Err(); err != nil { // waited in the queue for too long
		return out, transientError{err}
	}
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

// report completes the delivery with output or, when failure isn't nil, fails it.
func (w *Worker) report(ctx context.Context, cb callback, output resized, failure error) error {
	if failure == nil {
		return w.reporter.send(ctx, cb, "complete", map[string]any{"output": output})
	}
	return w.reporter.send(ctx, cb, "fail", map[string]any{"error": failure.Error(), "retryable": retryable(failure)})
}
