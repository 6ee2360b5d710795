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
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Config says where a Worker reads and writes, and how much it takes on.
type Config struct {
	Images     string        // folder that images are read from; must exist
	Thumbnails string        // folder that thumbnails are written to; made if it doesn't exist
	Secret     string        // signing secret of the endpoints, whsec_ and the base64 of 24 to 64 bytes
	Log        *slog.Logger  // default slog.Default()
	Parallel   int           // resizes at a time; default the number of CPUs
	Queue      int           // resizes accepted and not yet begun; default 64
	MaxPixels  int           // width × height above which an image isn't decoded; default 50,000,000
	RetryWait  time.Duration // wait before a completion is sent again, doubled each time; default 500 ms
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
	if c.RetryWait <= 0 {
		c.RetryWait = 500 * time.Millisecond
	}
}

// Worker answers the deliveries of both stages. It is an http.Handler with
// POST /inspect, POST /resize and GET /healthz. Close it after the server that
// serves it has been shut down.
type Worker struct {
	log       *slog.Logger
	webhook   *standardwebhooks.Webhook
	images    *os.Root
	out       *os.Root
	maxPixels int
	pool      *pool
	reporter  *reporter
	mux       *http.ServeMux

	ctx     context.Context // of the background work; ends when Close runs out of patience
	cancel  context.CancelFunc
	closing sync.Once
	closed  chan struct{} // closed when nothing runs any more
}

// New returns a Worker whose background goroutines run. It fails when the secret
// isn't one, when Images can't be opened, or when Thumbnails can't be made.
func New(cfg Config) (*Worker, error) {
	cfg.setDefaults()
	webhook, err := newWebhook(cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("thumbnails: %w", err)
	}
	images, out, err := openFolders(cfg.Images, cfg.Thumbnails)
	if err != nil {
		return nil, fmt.Errorf("thumbnails: %w", err)
	}
	w := &Worker{
		log: cfg.Log, webhook: webhook, images: images, out: out, maxPixels: cfg.MaxPixels,
		pool: newPool(cfg.Parallel, cfg.Queue), reporter: newReporter(cfg.RetryWait),
		mux: http.NewServeMux(), closed: make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.mux.HandleFunc("POST /inspect", w.inspect)
	w.mux.HandleFunc("POST /resize", w.resize)
	w.mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, http.StatusOK, map[string]string{"status": "ok"})
	})
	return w, nil
}

// openFolders opens both folders as roots, so that no name in a delivery can
// reach outside of them, by ".." or by a symbolic link.
func openFolders(images, thumbnails string) (in, out *os.Root, err error) {
	if images == "" || thumbnails == "" {
		return nil, nil, errors.New("the folders of images and of thumbnails must be given")
	}
	if in, err = os.OpenRoot(images); err != nil {
		return nil, nil, err
	}
	if err = os.MkdirAll(thumbnails, 0o755); err == nil {
		out, err = os.OpenRoot(thumbnails)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, out, nil
}

// ServeHTTP routes a request to its stage.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// Close accepts no more deliveries (503) and waits until the accepted ones are
// completed. When ctx ends first, the rest is cut short and an error returned:
// asyncflow delivers those tasks again once their deadline has passed.
func (w *Worker) Close(ctx context.Context) error {
	w.closing.Do(func() {
		w.pool.close()
		go w.release()
	})
	select {
	case <-w.closed:
		return nil
	case <-ctx.Done():
		w.cancel()
		return fmt.Errorf("thumbnails: background work cut short: %w", ctx.Err())
	}
}

func (w *Worker) release() {
	w.pool.wait()
	w.cancel()
	_ = w.images.Close() // only read from
	_ = w.out.Close()    // its files are synced one by one
	close(w.closed)
}
