// Command river works off jobs with River, to be measured beside asyncflow: no-op jobs, or with one
// POST each; inserted in batches, or one by one. It prints "ready" when all is set up, begins at a
// line of its input, prints the result in a line of JSON, and ends with its input.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	concurrency = 500
	warmUp      = 2000 // jobs
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var in inserter
	database := flag.String("database", "", "URL of a database")
	jobs := flag.Int("jobs", 60000, "number of jobs")
	url := flag.String("url", "", "where each job POSTs its context; empty: nowhere")
	flag.BoolVar(&in.singly, "singly", false, "insert one job at a time, in 64 goroutines")
	flag.Float64Var(&in.rate, "rate", 0, "insert as many jobs a second, singly; 0: all at once")
	flag.IntVar(&in.kinds, "kinds", 1, "kinds of jobs that are inserted singly, any at random")
	flag.BoolVar(&in.skewed, "skewed", false, "80 % of the jobs are of 20 % of the kinds")
	flag.Parse()
	pool, err := open(ctx, *database)
	if err != nil {
		return err
	}
	defer pool.Close()
	transport := &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: concurrency}
	w := &worker{url: *url, client: &http.Client{Transport: transport}}
	if in.client, err = start(ctx, pool, w, in.kinds); err != nil {
		return err
	}
	defer func() { _ = in.client.Stop(ctx) }()
	warm := in
	warm.rate = 0
	if _, err := work(ctx, pool, &warm, w, warmUp); err != nil {
		return err
	}
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	result, err := work(ctx, pool, &in, w, *jobs)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, input)
	return err
}

// open makes River's tables, empty.
func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `TRUNCATE river_job`)
	return pool, err
}

func start(
	ctx context.Context, pool *pgxpool.Pool, w *worker, kinds int,
) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	for i := range kinds {
		river.AddWorkerArgs(workers, args{kind: kindName(i)}, w)
	}
	errorsOnly := &slog.HandlerOptions{Level: slog.LevelError}
	queues := map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, errorsOnly)),
		Queues:            queues,
		Workers:           workers,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

// args are the arguments of a job: a context of 200 bytes.
type args struct {
	Pad  string `json:"pad"`
	kind string
}

// Kind is the kind of the job.
func (a args) Kind() string { return a.kind }

// kindName returns the name of a kind by its number.
func kindName(i int) string { return fmt.Sprintf("bench%d", i) }

var padding = strings.Repeat("x", 190)

type worker struct {
	river.WorkerDefaults[args]
	url    string
	client *http.Client
	worked atomic.Int64
}

// Work does a job.
func (w *worker) Work(ctx context.Context, job *river.Job[args]) error {
	defer w.worked.Add(1)
	if w.url == "" {
		return nil
	}
	body := bytes.NewReader(job.EncodedArgs)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, body)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return nil
}

// result is what the program reports in the end.
type result struct {
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_ms"` // from insert to completion
	P99        float64 `json:"p99_ms"`
	InsertMean float64 `json:"insert_mean_ms"` // of a job; 0: they are inserted in batches
}

// work inserts jobs and waits until they are completed.
func work(
	ctx context.Context, pool *pgxpool.Pool, in *inserter, w *worker, jobs int,
) (r result, err error) {
	start, before := time.Now(), w.worked.Load()
	inserting, err := in.insert(ctx, jobs)
	if err != nil {
		return r, err
	}
	r.InsertMean = 1000 * inserting.Seconds() / float64(jobs)
	for w.worked.Load() < before+int64(jobs) {
		time.Sleep(2 * time.Millisecond)
	}
	const unfinished = `SELECT EXISTS (SELECT FROM river_job WHERE state <> 'completed')`
	for left := true; left && err == nil; {
		time.Sleep(2 * time.Millisecond)
		err = pool.QueryRow(ctx, unfinished).Scan(&left)
	}
	r.Seconds = time.Since(start).Seconds()
	if err != nil {
		return r, err
	}
	const took = `1000 * extract(epoch FROM finalized_at - created_at)`
	err = pool.QueryRow(ctx, `
		SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY `+took+`)::float8,
		  percentile_disc(0.99) WITHIN GROUP (ORDER BY `+took+`)::float8
		FROM river_job WHERE created_at >= $1`, start).Scan(&r.P50, &r.P99)
	return r, err
}
