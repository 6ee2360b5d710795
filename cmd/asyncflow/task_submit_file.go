package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

const (
	chunksInFlight = 4
	// chunkRetries is how often a chunk is submitted again that the server certainly didn't take,
	// because it is restarting or unavailable.
	chunkRetries = 5
	leastPause   = time.Second
	longestPause = 30 * time.Second
)

// submitFile submits a task for each line of a file.
func (c *tasksSubmitCmd) submitFile(ctx context.Context, g *globals) error {
	in, size, err := openInput(c.File)
	if err != nil {
		return usageError(err)
	}
	defer in.Close()
	b := &bulk{api: g.client(), in: newLineReader(in, c.template()),
		tally: newTally(g.stderr, size)}
	failed := b.run(ctx)
	b.tally.finish()
	if err := b.tally.print(g); err != nil {
		return err
	}
	return failed
}

// openInput opens a file, or standard input if its name is "-". The size is -1 if it is
// unknown.
func openInput(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(os.Stdin), -1, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		_ = f.Close()
		return nil, 0, err
	case info.IsDir():
		_ = f.Close()
		return nil, 0, asyncflow.Errorf(asyncflow.CodeInvalid, "%s is a directory", name)
	case !info.Mode().IsRegular():
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// bulk submits tasks by chunks, a few at a time, while it reads the next one. It needs memory
// for a few chunks, however long the input is.
type bulk struct {
	api   *client.Client
	in    *lineReader
	tally *tally
	last  int // the last line that was passed on; earlier lines are accounted for
}

// run ends with the input, with the first chunk that fails as a whole, or with ctx. It first
// finishes the chunks in flight, since their fate would be unknown otherwise. An error carries
// the exit code.
func (b *bulk) run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	chunks, readErr := b.read(reading)
	var g errgroup.Group
	g.SetLimit(chunksInFlight)
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case c, more := <-chunks:
			if !more || b.tally.failure() != nil {
				done = true
				break
			}
			b.last = c.last
			g.Go(func() error { b.submit(context.WithoutCancel(ctx), c); return nil })
		}
	}
	_ = g.Wait() // the errors are in the tally
	return b.outcome(ctx, readErr)
}

// read reads chunks in its own goroutine, since reading standard input may block for ever. The
// error is set once the channel is closed.
func (b *bulk) read(ctx context.Context) (<-chan chunk, *error) {
	chunks := make(chan chunk)
	failed := new(error)
	go func() {
		defer close(chunks)
		for {
			c, err := b.in.next()
			select {
			case chunks <- c:
			case <-ctx.Done():
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					*failed = err
				}
				return
			}
		}
	}()
	return chunks, failed
}

// submit submits a chunk and enters the result of each line.
func (b *bulk) submit(ctx context.Context, c chunk) {
	b.tally.refuse(c.refused)
	tasks, lines := c.tasks, c.lines
	for try := 0; len(tasks) > 0; try++ {
		results, err := b.api.SubmitMany(ctx, tasks)
		b.tally.enter(lines, results)
		tasks = tasks[len(results):]
		lines = lines[len(results):]
		if err == nil {
			break
		}
		pause, again := b.pauseAfter(err, try)
		if !again {
			b.tally.fail(lines, err)
			break
		}
		sleep.For(ctx, pause)
	}
	b.tally.advance(c.size)
}

// pauseAfter reports whether to try again after an error, and when. It does so only if the call
// surely had no effect: nothing may be submitted twice. As long as nothing was submitted at all, a
// server that can't be reached probably doesn't exist. A tenant that is over its rate waits without
// limit.
func (b *bulk) pauseAfter(err error, try int) (time.Duration, bool) {
	var known *asyncflow.Error
	if errors.As(err, &known) && known.Code == asyncflow.CodeRateLimited {
		return max(leastPause, known.RetryAfter), b.tally.failure() == nil
	}
	if client.Uncertain(err) || !errors.As(err, &known) || known.Code != asyncflow.CodeUnavailable {
		return 0, false
	}
	if try >= chunkRetries || b.tally.failure() != nil || b.tally.submittedSoFar() == 0 {
		return 0, false
	}
	pause := min(leastPause<<try, longestPause)
	var answer *client.Error
	if errors.As(err, &answer) && answer.RetryAfter > pause {
		return answer.RetryAfter, answer.RetryAfter <= longestPause
	}
	return pause, true
}

// outcome returns the error of the whole run.
func (b *bulk) outcome(ctx context.Context, readErr *error) error {
	switch failure := b.tally.failure(); {
	case failure != nil:
		return &codedError{exitCode(failure),
			fmt.Errorf("stopped: nothing after line %d was submitted", b.last)}
	case ctx.Err() != nil:
		return &codedError{exitFailed,
			fmt.Errorf("interrupted: nothing after line %d was submitted", b.last)}
	case *readErr != nil:
		return &codedError{exitFailed,
			fmt.Errorf("the input can't be read after line %d: %w", b.last, *readErr)}
	case b.tally.refusedSoFar() > 0:
		return silent(exitFailed)
	}
	return nil
}
