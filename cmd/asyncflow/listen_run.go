package main

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// listener forwards deliveries to a worker. What it claimed and did not forward comes again.
type listener struct {
	client   *client.Client
	wire     *http.Transport // of client and reporter
	reporter *sdk.Reporter
	sender   *callbacks.Sender
	out      *listenOutput
	to       *url.URL
	claimer  string
	labels   asyncflow.ClaimerLabels

	away outage // asyncflow can't be reached
	down outage // the worker can't be reached

	mu      sync.Mutex
	polls   context.Context // of calls that wait; it ends after the machine slept
	again   context.CancelFunc
	last    *lastDelivery
	repeat  atomic.Int64 // how often r was pressed
	repeats atomic.Bool  // a repetition is under way
}

const (
	listenTimeout = 10 * time.Second // of a call, beside what it waits for
	listenWait    = 15 * time.Second // for a task; a silent loss is noticed by then
	listenAtOnce  = 10               // deliveries of a stage
	listenGrace   = 5 * time.Second  // for what is under way at the end
)

func newListener(g *globals, out *listenOutput, to *url.URL) (*listener, error) {
	wire := newListenTransport()
	c, err := g.connect(client.WithTimeout(listenTimeout),
		client.WithHTTPClient(&http.Client{Transport: wire}))
	if err != nil {
		return nil, err
	}
	sender := callbacks.NewSender(callbacks.Config{Version: version, Egress: asyncflow.Anywhere,
		MaxOutput: listenMaxOutput}, nil)
	return &listener{client: c, wire: wire, reporter: sdk.NewReporter(wire), sender: sender,
		out: out, to: to, claimer: claimerName()}, nil
}

const (
	// listenMaxOutput bounds an answer, so that its base64 fits into a report.
	listenMaxOutput = 2 * asyncflow.DefaultMaxContext
	// listenExcerpt is what is reported of the body of an answer that isn't 2xx.
	listenExcerpt = 1000
)

// run forwards deliveries of stages until ctx ends, or a stage can't be listened to any more.
func (l *listener) run(ctx context.Context, stages []listenStage) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(listenGrace, cut) })()
	l.renew(ctx)
	l.greet(stages)
	restore := l.out.keys(func(key byte) {
		switch key {
		case 'r':
			l.repeatLast(work)
		case 'q', 4: // Ctrl-D
			stop()
		}
	})
	defer restore()
	defer context.AfterFunc(ctx, restore)() // a second Ctrl-C ends the program at once
	go watchSleep(ctx, func(slept time.Duration) {
		l.out.note("this machine slept for %s: tasks have waited meanwhile",
			slept.Round(time.Second))
		l.renew(ctx)
	})
	var all errgroup.Group
	for _, s := range stages {
		all.Go(func() error {
			return newStageListener(l, s, asyncflow.MaxOpenClaims).run(ctx, work, stop)
		})
	}
	return all.Wait()
}

func (l *listener) greet(stages []listenStage) {
	shown := map[string]bool{}
	for _, s := range stages {
		switch {
		case s.secret == "":
			l.out.problem("%s", s.unknownSecret())
		case !shown[s.secret]:
			l.out.note("signing secret: %s", s.secret)
			shown[s.secret] = true
		}
	}
	for _, s := range stages {
		l.out.note("listening to %s, forwarding to %s", s, l.to)
	}
}

// renew ends the calls that wait, so that they are made anew: their connections may be dead.
func (l *listener) renew(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again != nil {
		l.again()
	}
	l.wire.CloseIdleConnections()
	l.polls, l.again = context.WithCancel(ctx)
}

func (l *listener) waiting() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.polls
}

// lost tells once that asyncflow can't be reached.
func (l *listener) lost(err error) {
	l.wire.CloseIdleConnections()
	if l.away.begin() {
		l.out.problem("the connection to asyncflow is lost, trying again: %v", err)
	}
}

// found tells how long asyncflow couldn't be reached.
func (l *listener) found() {
	if length, was := l.away.end(); was {
		l.out.problem("connected to asyncflow again after %s: tasks have waited meanwhile", length)
	}
}

// awaitWorker waits until something listens at the URL. It returns false when ctx ends.
func (l *listener) awaitWorker(ctx context.Context) bool {
	for !answers(ctx, l.to) {
		if ctx.Err() != nil {
			return false
		}
		if l.down.begin() {
			l.out.problem("nothing listens at %s: start your worker there, or give another "+
				"--forward; tasks wait until then", l.to)
		}
		if !sleep.For(ctx, listenPauses[2]) {
			return false
		}
	}
	if length, was := l.down.end(); was {
		l.out.problem("%s answers again after %s", l.to, length)
	}
	return true
}
