package thumbnails

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"

	"github.com/asyncflow/asyncflow/worker"
)

// Config says where a Worker reads and writes, and how much work it accepts.
type Config struct {
	Images     string // folder of the images; must exist
	Thumbnails string // folder of the thumbnails; made if it doesn't exist
	// signing secret of the endpoints, whsec_ and the base64 of 24 to 64 bytes
	Secret    string
	Log       *slog.Logger // default slog.Default()
	Parallel  int          // concurrent resizes; default: the number of CPUs
	Queue     int          // accepted deliveries that wait; default 64
	MaxPixels int          // width × height above which an image isn't decoded; default 50,000,000
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Parallel <= 0 {
		c.Parallel = runtime.NumCPU()
	}
	if c.Queue <= 0 {
		c.Queue = 64
	}
	if c.MaxPixels <= 0 {
		c.MaxPixels = 50_000_000
	}
}

// Worker answers the deliveries of both stages. It is an http.Handler with POST /inspect, POST
// /resize and GET /healthz. Close it after its server was shut down.
type Worker struct {
	sdk       *worker.Worker
	images    *os.Root
	out       *os.Root
	maxPixels int
	slots     chan struct{} // one in it for each resize that runs
	mux       *http.ServeMux
	release   func()
}

// New returns a Worker. It fails if the secret is invalid, if Images can't be opened, or if
// Thumbnails can't be made.
func New(cfg Config) (*Worker, error) {
	cfg.setDefaults()
	sdk, err := worker.New(worker.Config{
		Keys:        []string{cfg.Secret},
		Log:         cfg.Log,
		MaxInFlight: cfg.Parallel + cfg.Queue,
		MaxBody:     1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("thumbnails: %w", err)
	}
	images, out, err := openFolders(cfg.Images, cfg.Thumbnails)
	if err != nil {
		return nil, fmt.Errorf("thumbnails: %w", err)
	}
	w := &Worker{
		sdk:       sdk,
		images:    images,
		out:       out,
		maxPixels: cfg.MaxPixels,
		slots:     make(chan struct{}, cfg.Parallel),
		mux:       http.NewServeMux(),
	}
	w.release = sync.OnceFunc(func() {
		_ = w.images.Close() // only read from
		_ = w.out.Close()    // its files are synced one by one
	})
	worker.Handle(sdk, "thumbnails", "inspect", w.inspect)
	worker.Handle(sdk, "thumbnails", "resize", w.resize, worker.AnswerWithin(-1))
	w.mux.Handle("POST /inspect", sdk)
	w.mux.Handle("POST /resize", sdk)
	w.mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"status":"ok"}`)) // the client may be gone
	})
	return w, nil
}

// openFolders opens both folders as roots, so that no name in a delivery can lead outside, by ".."
// or by a symbolic link.
func openFolders(images, thumbnails string) (in, out *os.Root, err error) {
	if images == "" || thumbnails == "" {
		return nil, nil, errors.New("the folders of images and of thumbnails must be given")
	}
	if in, err = os.OpenRoot(images); err != nil {
		return nil, nil, err
	}
	if err = os.MkdirAll(thumbnails, 0o755); err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	if out, err = os.OpenRoot(thumbnails); err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, out, nil
}

// ServeHTTP routes a request to its stage.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// Close refuses new deliveries (503) and waits until the accepted ones are reported. If ctx ends
// first, it interrupts the rest and returns an error: asyncflow delivers those tasks again.
func (w *Worker) Close(ctx context.Context) error {
	defer w.release()
	if err := w.sdk.Close(ctx); err != nil {
		return fmt.Errorf("thumbnails: %w", err)
	}
	return nil
}
