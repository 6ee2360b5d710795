package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/asyncflow/asyncflow/client"
)

type workersCmd struct {
	Type  string   `placeholder:"NAME" help:"Task type. Default: all types."`
	Since timeFlag `default:"15m" placeholder:"TIME"`
	Limit int      `default:"100" help:"The most workers to show, up to 500."`
}

func (c *workersCmd) Help() string {
	return `It lists the workers that run tasks now, or ended attempts since a time, the worst first.
STATE is one of these:

    gone     its last attempt was lost, or its stage goes on without it
    failing  at least half of its attempts failed
    slow     its attempts take at least twice as long as the others' of its stage, by the medians
    well     nothing of that

A worker gives its name in the header Asyncflow-Worker. Workers without one share a line for each
endpoint, as -.

Examples:

    asyncflow workers --type thumbnails
    asyncflow workers --since 2h -o json | jq '.workers[] | select(.state == "gone") | .name'
    asyncflow tasks list --worker worker-7f9c --status running`
}

// Run lists the workers of a time.
func (c *workersCmd) Run(ctx context.Context, g *globals) error {
	report, err := g.client().Workers(ctx,
		client.WorkerParams{Type: c.Type, Since: c.Since.Time, Limit: c.Limit})
	if done, err := g.asDocument(report, err); done {
		return err
	}
	rows := make([][]string, len(report.Workers))
	for i, w := range report.Workers {
		rows[i] = workerRow(w)
	}
	header := "WORKER STATE RUNNING SEEN ATTEMPTS FAILED LOST P50 P95 WHERE ENDPOINT"
	if err := g.printTable(header, rows); err != nil {
		return err
	}
	return g.printWorkersRead(report)
}

// workerRow returns the row of a worker.
func workerRow(w client.WorkerHealth) []string {
	took := func(ms float32) string {
		if w.Duration == (client.WorkerDuration{}) {
			return ""
		}
		return latencyText(ms)
	}
	return []string{cmp.Or(w.Name, w.Claimer), string(w.State), strconv.Itoa(w.Running),
		timeText(w.LastSeen), strconv.Itoa(w.Attempts), strconv.Itoa(w.Failures),
		strconv.Itoa(w.Lost), took(w.Duration.P50Ms), took(w.Duration.P95Ms),
		w.Type + "/" + w.Stage, w.URL}
}

// printWorkersRead says what was read and what wasn't, on the standard error.
func (g *globals) printWorkersRead(report client.WorkerReport) error {
	text := fmt.Sprintf("%d attempts since %s", report.Searched.Attempts, timeText(report.Since))
	if !report.Searched.Complete {
		text = "a sample of " + text
	}
	if more := report.Count - len(report.Workers); more > 0 {
		text += fmt.Sprintf("; %d more workers: see --limit", more)
	}
	_, err := fmt.Fprintln(g.stderr, text)
	return err
}
