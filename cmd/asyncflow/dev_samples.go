package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/examples/thumbnails"
	"github.com/asyncflow/asyncflow/internal/document"
)

const sampleType = "thumbnails"

// runSamples runs the sample worker until ctx ends, and submits a task for each sample image.
func (d *dev) runSamples(ctx context.Context) error {
	images := filepath.Join(d.cmd.Data, "images")
	out := filepath.Join(d.cmd.Data, "thumbnails")
	names, err := thumbnails.WriteSamples(images)
	if err != nil {
		return err
	}
	worker, err := thumbnails.New(thumbnails.Config{Images: images, Thumbnails: out,
		Secret: d.secrets.Samples, Log: d.log.With("worker", sampleType)})
	if err != nil {
		return err
	}
	url, stop, err := d.serveWorker(worker)
	if err != nil {
		return err
	}
	defer stop()
	d.log.Info("the sample worker is ready", "url", url, "images", images, "thumbnails", out)
	api, err := client.New(d.url, d.token)
	if err != nil {
		return err
	}
	if err := d.registerWorker(ctx, api, url); err != nil {
		return d.orStopped(ctx, err)
	}
	if err := d.submitSamples(ctx, api, names, out); err != nil {
		return d.orStopped(ctx, err)
	}
	<-ctx.Done()
	return nil
}

// orStopped returns err, or nil if the server is stopping.
func (d *dev) orStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// serveWorker serves the sample worker, on another port if its own is taken.
func (d *dev) serveWorker(worker *thumbnails.Worker) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", d.cmd.WorkerAddr)
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", nil, fmt.Errorf("the sample worker: %w", err)
		}
	}
	server := &http.Server{Handler: worker, ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("the sample worker has ended", "error", err)
		}
	}()
	return "http://" + l.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), worker.Close(ctx)); err != nil {
			d.log.Warn("the sample worker did not stop cleanly", "error", err)
		}
	}, nil
}

// registerWorker applies the sample document, and deletes the endpoints of earlier runs on
// other ports.
func (d *dev) registerWorker(ctx context.Context, api *client.Client, url string) error {
	env := map[string]string{"THUMBNAILS_URL": url, "THUMBNAILS_SECRET": d.secrets.Samples}
	doc, err := document.Parse(thumbnails.Document,
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return err
	}
	if err := doc.Apply(ctx, api, func(document.Change) {}); err != nil {
		return err
	}
	endpoints, err := api.Endpoints(ctx, sampleType)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if e.URL != url+"/"+e.Stage {
			if err := api.DeleteEndpoint(ctx, e.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// samplesTime bounds the wait for the samples, also on a busy machine.
const samplesTime = 100 * time.Second

// submitSamples submits a task for each image, waits until they are final, and logs the result.
func (d *dev) submitSamples(
	ctx context.Context, api *client.Client, names []string, out string,
) error {
	var ids []string
	for _, name := range names {
		context, err := json.Marshal(map[string]string{"image": name})
		if err != nil {
			return err
		}
		task, err := api.Submit(ctx, client.NewTask{Type: sampleType, Context: context})
		if err != nil {
			return err
		}
		ids = append(ids, task.ID)
	}
	done := 0
	deadline := time.Now().Add(samplesTime)
	for _, id := range ids {
		task, err := api.Wait(ctx, id, max(time.Until(deadline), time.Millisecond))
		if err != nil {
			return err
		}
		if task.Status == asyncflow.StatusSucceeded {
			done++
		}
	}
	files, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	d.log.Info("samples", "tasks", len(ids), "succeeded", done, "thumbnails", len(files), "folder",
		out)
	d.printTour(ids[0], names[0])
	return nil
}

// redact returns a database URL without its password.
func redact(url string) string {
	before, rest, ok := strings.Cut(url, "://")
	_, after, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 {
		return url
	}
	return before + "://…@" + after
}

// printTour prints commands to try next, ready to paste.
func (d *dev) printTour(sampleID, image string) {
	w := d.g.stdout
	fmt.Fprintf(w, "\nThe console: %s/console\n", d.url)
	fmt.Fprintf(w, "\nasyncflow is running: %s, tenant %s. Stop it with Ctrl-C.\n", d.url,
		devTenant)
	fmt.Fprintf(w, "\nGo on in another terminal:\n\n  export ASYNCFLOW_URL=%s "+
		"ASYNCFLOW_TOKEN=%s\n\n",
		d.url, d.token)
	if sampleID == "" {
		fmt.Fprintf(w,
			"  curl -s $ASYNCFLOW_URL/v1/task-types -H \"Authorization: Bearer "+
				"$ASYNCFLOW_TOKEN\"\n\n")
		return
	}
	fmt.Fprintf(w, `  # what became of a sample, and each of its attempts
  curl -s $ASYNCFLOW_URL/v1/tasks/%[1]s -H "Authorization: Bearer $ASYNCFLOW_TOKEN"
  curl -s $ASYNCFLOW_URL/v1/tasks/%[1]s/attempts -H "Authorization: Bearer $ASYNCFLOW_TOKEN"

  # submit a task of your own
  curl -s $ASYNCFLOW_URL/v1/tasks -H "Authorization: Bearer $ASYNCFLOW_TOKEN" \
    -H 'Content-Type: application/json' -d '{"type":"thumbnails","context":{"image":"%[2]s"}}'

  # the newest tasks
  curl -s "$ASYNCFLOW_URL/v1/tasks?type=thumbnails&limit=5" \
    -H "Authorization: Bearer $ASYNCFLOW_TOKEN"

`, sampleID, image)
}
