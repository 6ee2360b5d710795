// Receipts is a small program that is told the ends of tasks, by on_final. It keeps which events it
// handled, so that one that comes again does nothing further.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"

	"github.com/asyncflow/asyncflow/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "127.0.0.1:9100", os.Getenv("RECEIPTS_SECRET")); err != nil {
		log.Fatal(err)
	}
}

// run receives events at an address until ctx ends.
func run(ctx context.Context, address, secret string) error {
	w, err := worker.New(worker.Config{Keys: []string{secret}})
	if err != nil {
		return err
	}
	w.HandleFinal(newReceipts(os.Stdout).ended)
	return w.ListenAndServe(ctx, address)
}

// receipts writes a line for each end of a task.
type receipts struct {
	out  *os.File
	mu   sync.Mutex
	done map[string]bool // by the id of the event; a real program keeps it in its database
}

func newReceipts(out *os.File) *receipts { return &receipts{out: out, done: map[string]bool{}} }

// ended handles an event. It may come again: its effect is there once.
func (r *receipts) ended(_ context.Context, e worker.FinalEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[e.ID] {
		return nil
	}
	text := string(e.Data.Result)
	if e.Data.Error != "" {
		text = e.Data.Error
	}
	_, err := fmt.Fprintf(r.out, "%s %s after %d attempts: %s\n", e.Data.ID, e.Data.Status,
		e.Data.Attempts, text)
	if err != nil {
		return err // the event comes again
	}
	r.done[e.ID] = true
	return nil
}
