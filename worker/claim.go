package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/claimed"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// Claims says how a Worker asks for tasks, instead of being sent them.
type Claims struct {
	// Client needs a token with the scope work.
	Client *client.Client
	// Claimer is who asks, and must differ from all who ask at the same time; "": a name made from
	// that of the host and a random number.
	Claimer string
	// Labels are what the claimer is or can do, for tasks with rules; see [client.ClaimRequest].
	Labels asyncflow.ClaimerLabels
	// Concurrency bounds the tasks of a stage that are worked on at once; 0: 10.
	Concurrency int
	// Wait is how long one call waits for a task; 0: 30 s.
	Wait time.Duration
}

const (
	defaultConcurrency = 10
	defaultClaimWait   = 30 * time.Second
)

func (c Claims) withDefaults() Claims {
	if c.Claimer == "" {
		host, _ := os.Hostname()
		c.Claimer = fmt.Sprintf("%.60s-%x", cmp.Or(host, "worker"), rand.Uint64())
	}
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Wait = cmp.Or(c.Wait, defaultClaimWait)
	return c
}

// Claim claims tasks of a stage and passes them to the stage's handler, until ctx ends. Then it
// asks for no more, gives back what hasn't begun, and returns nil; Close waits for the tasks in
// flight. It retries with growing pauses while asyncflow can't be reached, or says that it is out
// of capacity. Other refusals are its error: a token without the scope work, or a stage that isn't
// of mode claim.
func (w *Worker) Claim(ctx context.Context, c Claims, taskType, stage string) error {
	h := w.handlerOf(stageName{taskType, stage})
	switch {
	case c.Client == nil:
		return asyncflow.InvalidField("Client", "is required")
	case h == nil:
		return asyncflow.InvalidField("stage", "%s/%s has no handler", taskType, stage)
	case c.Concurrency < 0 || c.Concurrency > asyncflow.MaxOpenClaims:
		return asyncflow.InvalidField("Concurrency", "is %d; it must be 1 to %d", c.Concurrency,
			asyncflow.MaxOpenClaims)
	}
	c = c.withDefaults()
	l := &claimer{worker: w, handler: h,
		claims: c, ask: client.ClaimRequest{Type: taskType, Stage: stage, Claimer: c.Claimer,
			Wait: asyncflow.NewDuration(c.Wait), Labels: c.Labels}}
	l.held = claimed.New(w.mostClaims, l.open, func() {
		w.cfg.Log.Warn("all claims are open elsewhere: claiming goes on when one of them ends",
			"type", taskType, "stage", stage, "claims", w.mostClaims)
	})
	for tries := 0; ctx.Err() == nil; {
		room := l.held.WaitForCapacity(ctx, c.Concurrency)
		if room == 0 {
			break
		}
		err := l.once(ctx, room)
		var answer *client.Error
		switch {
		case err == nil:
			tries = 0
			continue
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &answer) && answer.Status/100 == 4 &&
			answer.Status != http.StatusTooManyRequests:
			return fmt.Errorf("worker.Claim %s/%s: %w", taskType, stage, err)
		}
		w.cfg.Log.Warn("no claim, trying again", "type", taskType, "stage", stage, "error", err)
		sleep.For(ctx, backoff(reportMinWait, reportMaxWait, tries, nil))
		tries++
	}
	return nil
}

// claimer asks for tasks of one stage.
type claimer struct {
	worker  *Worker
	handler *handler
	claims  Claims
	ask     client.ClaimRequest
	held    *claimed.Set
}

// open reports whether a claim that goes on elsewhere is still open.
func (l *claimer) open(ctx context.Context, id, token string) bool {
	cb := Callback{URL: l.claims.Client.URL() + "/v1/callbacks/" + id, Token: token}
	return l.worker.reporter.Open(ctx, cb)
}

// once asks for tasks, most at once, and begins them.
func (l *claimer) once(ctx context.Context, most int) error {
	l.ask.Max, l.ask.Held = most, l.held.IDs()
	all, err := l.claims.Client.Claim(client.AsWorker(ctx, l.worker.cfg.Name), l.ask)
	if err != nil {
		return err
	}
	var runs []*run
	for _, d := range all {
		if !l.held.Take(d.TaskID, d.Seq) {
			continue
		}
		if ctx.Err() != nil || !l.worker.admit(1) {
			l.held.End(d.TaskID)
			l.giveBack(d)
			continue
		}
		runs = append(runs, l.begin(d))
	}
	if len(runs) > 0 {
		l.handler.start(runs)
	}
	return nil
}

// begin returns the run of a task. Its result will be reported: there is no request to answer.
func (l *claimer) begin(d client.Delivery) *run {
	x := &exchange{answered: make(chan struct{}), sent: make(chan struct{})}
	close(x.answered)
	close(x.sent)
	until, now := d.Deadline, time.Now()
	if !until.After(now) { // this machine's clock is ahead
		until = now.Add(asyncflow.FirstClaim)
	}
	r := newRun(context.Background(), l.worker, l.handler, x, deliveryOf(d), until)
	r.accepted = true
	go func() {
		<-r.over
		if r.result.kind != kindAccepted {
			l.held.End(d.TaskID)
			return
		}
		// Nothing was heard of it yet.
		_, _ = l.worker.reporter.Heartbeat(l.worker.reports, r.delivery.Callback)
		l.held.Later(d.TaskID, d.Callback.Token)
	}()
	return r
}

// giveBack gives back a task that hasn't begun. If that fails, the claim runs out soon.
func (l *claimer) giveBack(d client.Delivery) {
	ctx, cancel := context.WithTimeout(l.worker.reports, reportTimeout)
	defer cancel()
	cb := Callback{URL: d.Callback.URL, Token: d.Callback.Token}
	if err := l.worker.reporter.Release(ctx, cb); err != nil {
		l.worker.cfg.Log.Warn("a claim was not given back", "task", d.TaskID, "error", err)
	}
}

func deliveryOf(d client.Delivery) delivery {
	out := delivery{TaskID: d.TaskID, Type: d.Type, TypeVersion: d.TypeVersion, Stage: d.Stage,
		Attempt: d.Attempt, MaxAttempts: d.MaxAttempts, Seq: d.Seq, Deadline: d.Deadline,
		Context:    d.Context,
		Checkpoint: d.Checkpoint, Callback: Callback{URL: d.Callback.URL, Token: d.Callback.Token},
		Input: d.Input, Outputs: d.Outputs, ByURL: d.ByURL, Links: d.Links,
		User: d.User, Tags: d.Tags, Metadata: d.Metadata, Trace: d.Trace,
		Traceparent: d.Traceparent}
	if f := d.FanOut; f.Parent != "" {
		out.FanOut = &FanOut{Parent: f.Parent, Index: f.Index, Count: f.Count, Shared: f.Shared}
	}
	return out
}
