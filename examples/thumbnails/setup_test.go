package thumbnails_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	token  = "completion-token"
	soon   = time.Minute // a test that waits longer fails
)

// ownClient stands in for http.DefaultClient. A server of httptest that ends closes the idle
// connections of the default transport, which may break a request of a parallel test.
var ownClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// bench is a worker on a server of its own, its folders, and the asyncflow that sends to it.
type bench struct {
	images, out string
	worker      *thumbnails.Worker
	url         string
	asyncflow   *receiver
}

// setup starts a worker with the sample images; changes may alter its Config.
func setup(t *testing.T, with ...func(*thumbnails.Config)) *bench {
	t.Helper()
	b := &bench{images: t.TempDir(), out: t.TempDir(), asyncflow: newReceiver(t)}
	_, err := thumbnails.WriteSamples(b.images)
	require.NoError(t, err)
	writeSmall(t, filepath.Join(b.images, "small.png"))
	cfg := thumbnails.Config{
		Images: b.images, Thumbnails: b.out, Secret: secret,
		Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range with {
		change(&cfg)
	}
	b.worker, err = thumbnails.New(cfg)
	require.NoError(t, err)
	server := httptest.NewServer(b.worker)
	t.Cleanup(func() {
		server.Close()
		b.close(t)
	})
	b.url = server.URL
	return b
}

// writeSmall writes an image that is quick to scale.
func writeSmall(t *testing.T, name string) {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, 80, 60))
	for i := range m.Pix {
		m.Pix[i] = uint8(i)
	}
	var encoded bytes.Buffer
	require.NoError(t, png.Encode(&encoded, m))
	require.NoError(t, os.WriteFile(name, encoded.Bytes(), 0o644))
}

// close waits for the worker's background work.
func (b *bench) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	require.NoError(t, b.worker.Close(ctx))
}

// envelope returns the body of a delivery of a stage, with any context.
func (b *bench) envelope(stage string, context any) map[string]any {
	return map[string]any{
		"task_id": "thumbnails.1.42", "type": "thumbnails", "stage": stage,
		"attempt": 1, "max_attempts": 20, "seq": 1, "shard": 3, "later": map[string]any{"id": "x"},
		"deadline": time.Now().Add(time.Minute).Format(time.RFC3339), "context": context,
		"callback": map[string]any{"url": b.asyncflow.url + "/v1/callbacks/thumbnails.1.42",
			"token": token},
	}
}

// deliver posts a signed delivery of an image to a stage.
func (b *bench) deliver(t *testing.T, stage, image string) response {
	t.Helper()
	return b.post(t, stage, signed(t, time.Now(),
		b.envelope(stage, map[string]any{"image": image})))
}

func (b *bench) post(t *testing.T, path string, d message) response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.url+"/"+path, bytes.NewReader(d.body))
	require.NoError(t, err)
	req.Header = d.header.Clone()
	res, err := ownClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return response{status: res.StatusCode, header: res.Header, body: string(body)}
}

type response struct {
	status int
	header http.Header
	body   string
}

// message is a delivery that can be posted.
type message struct {
	header http.Header
	body   []byte
}

var ids atomic.Int64

// signed signs an envelope with a time, by the official library. Each result is a delivery of its
// own.
func signed(t *testing.T, at time.Time, envelope any) message {
	t.Helper()
	body, err := json.Marshal(envelope)
	require.NoError(t, err)
	hook, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	id := fmt.Sprintf("thumbnails.1.42.%d", ids.Add(1))
	signature, err := hook.Sign(id, at, body)
	require.NoError(t, err)
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return message{header: header, body: body}
}

// receiver stands for asyncflow: it records the reports and answers them.
type receiver struct {
	url     string
	reports chan report
	answer  atomic.Pointer[http.HandlerFunc]
}

// report is a completion as it arrived.
type report struct {
	method, path, authorization string
	body                        string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{reports: make(chan report, 100)}
	r.answers(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, `{"status":"ok"}`)
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.reports <- report{req.Method, req.URL.Path, req.Header.Get("Authorization"), string(body)}
		(*r.answer.Load())(rw, req)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) answers(h http.HandlerFunc) { r.answer.Store(&h) }

// next waits for a report, and checks its address and its authorization. Heartbeats come before
// other reports where the work takes long, and are passed over unless verb asks for one.
func (r *receiver) next(t *testing.T, verb string) report {
	t.Helper()
	const base, heartbeat = "/v1/callbacks/thumbnails.1.42/", "heartbeat"
	for late := time.After(soon); ; {
		select {
		case got := <-r.reports:
			require.Equal(t, http.MethodPost, got.method)
			require.Equal(t, "Bearer "+token, got.authorization)
			if verb != heartbeat && got.path == base+heartbeat {
				continue
			}
			require.Equal(t, base+verb, got.path, got.body)
			return got
		case <-late:
			require.FailNow(t, "no report arrived")
		}
	}
}

// files returns the names in a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
