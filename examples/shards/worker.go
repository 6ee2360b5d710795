package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/asyncflow/asyncflow/worker"
)

// Config says what a worker reads.
type Config struct {
	Texts  fs.FS        // the folder of the text files
	Secret string       // signing secret of the endpoints, whsec_ and the base64 of 24 to 64 bytes
	Log    *slog.Logger // default slog.Default()
}

// Results is the context of the stage after a fan-out.
type Results struct {
	Count   int      `json:"count"`
	Results []Counts `json:"results"`
}

// New returns a worker for both stages. It is an http.Handler. Close it after its server was shut
// down.
func New(cfg Config) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{Keys: []string{cfg.Secret}, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	worker.Handle(w, "words", "count",
		func(_ context.Context, task worker.Task[json.RawMessage]) (Counts, error) {
			if task.FanOut == nil {
				return Counts{}, worker.Fail(errors.New("the stage count has no fan_out"))
			}
			return Count(cfg.Texts, task.FanOut.Index, task.FanOut.Count)
		})
	worker.Handle(w, "words", "sum",
		func(_ context.Context, task worker.Task[Results]) (Total, error) {
			if len(task.Context.Results) != task.Context.Count {
				return Total{}, worker.Fail(errors.New("results are missing"))
			}
			return Sum(task.Context.Results), nil
		})
	return w, nil
}
