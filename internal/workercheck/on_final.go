package workercheck

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// finals are the checks of a receiver of events, in place of those of a worker.
var finals = []struct {
	needs  string
	checks []check
}{
	{"", []check{eventReached}},
	{eventReached.name, append([]check{eventTaken}, eventTrust...)},
	{eventTaken.name, eventWork},
}

// eventFix is what a receiver must do with an event.
const eventFix = "answer a signed event with any 2xx once it is handled; see docs/notifications.md"

var eventReached = check{"reached",
	"start the receiver, and check the URL; allow plain http or a private network as on a node",
	func(ctx context.Context, r *rehearsal) finding {
		o := r.tell(ctx, r.event(asyncflow.StatusSucceeded, nil))
		if o.Status == 0 {
			return failed("%s", o.Error)
		}
		return passed("answered %d", o.Status)
	}}

var eventTaken = check{"event", eventFix,
	func(ctx context.Context, r *rehearsal) finding {
		return received(r.tell(ctx, r.event(asyncflow.StatusSucceeded, nil)), "an event")
	}}

// eventTrust are the checks that a receiver believes only events of asyncflow.
var eventTrust = []check{
	{"bad signature",
		"compare the signatures of Webhook-Signature with your own, and answer 401 if none is " +
			"the same",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.event(asyncflow.StatusSucceeded, nil)
			var err error
			if d.Endpoint, err = r.endpointWithOtherSecret(); err != nil {
				return failed("%s", err)
			}
			return refused(r.tell(ctx, d), "signed with another secret")
		}},
	{"old timestamp",
		"answer 401 if Webhook-Timestamp is more than 5 minutes away from now, also if the " +
			"signature is good",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.event(asyncflow.StatusSucceeded, nil)
			d.At = d.At.Add(-2 * signing.Tolerance)
			return refused(r.tell(ctx, d), "signed 10 minutes ago")
		}},
	{"challenge",
		`answer a signed {"type": "asyncflow.challenge", "challenge": "…"} ` +
			`with 200 and the same challenge: some nodes ask for it before the first event`,
		func(ctx context.Context, r *rehearsal) finding {
			if err := r.sender.Challenge(ctx, tenant, *r.endpoint, time.Now()); err != nil {
				return failed("%s", err)
			}
			return passed("echoed")
		}},
}

// eventWork are the checks that a receiver takes all events, and each as often as it comes.
var eventWork = []check{
	{"each status", "take events of tasks that failed or were cancelled, too; they have an error",
		func(ctx context.Context, r *rehearsal) (f finding) {
			for _, status := range []asyncflow.Status{asyncflow.StatusFailed,
				asyncflow.StatusCancelled} {
				f = received(r.tell(ctx, r.event(status, nil)), "task."+string(status))
				if f.result == Failed {
					return f
				}
			}
			return f
		}},
	{"the same event again",
		"answer an event that came before with 2xx, too: its first answer may have been lost. Do " +
			"what follows from it once for each webhook-id",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.event(asyncflow.StatusSucceeded, nil)
			if f := received(r.tell(ctx, d), "an event"); f.result == Failed {
				return f
			}
			d.Lease.Seq++
			d.Lease.Attempt++
			return received(r.tell(ctx, d), "the same event again")
		}},
	{"long result", "take bodies of at least 300 KiB: a result may have 256 KiB",
		func(ctx context.Context, r *rehearsal) finding {
			return received(r.tell(ctx, r.event(asyncflow.StatusSucceeded, longText())),
				"an event with a long result")
		}},
	{"unknown fields", "ignore fields that you don't know: later versions may add some",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.event(asyncflow.StatusSucceeded, nil)
			d.Lease.Context = append([]byte(`{"rehearsal":{"unknown":[1,{}]},`),
				d.Lease.Context[1:]...)
			return received(r.tell(ctx, d), "an event with an unknown field")
		}},
}

// longText returns a result of 256 KiB.
func longText() []byte {
	doc := make([]byte, asyncflow.DefaultMaxContext)
	for i := range doc {
		doc[i] = 'x'
	}
	doc[0] = '"'
	doc[len(doc)-1] = '"'
	return doc
}

// received is the finding that an event was received.
func received(o asyncflow.Outcome, what string) finding {
	switch {
	case o.Kind == asyncflow.OutcomeDone:
		return passed("answered %d", o.Status)
	case o.Status == 0:
		return failed("%s: %s", what, o.Error)
	}
	return failed("%s was answered with %d %s", what, o.Status, http.StatusText(o.Status))
}

// event returns the delivery of an event of its own.
func (r *rehearsal) event(status asyncflow.Status, result []byte) asyncflow.Delivery {
	d := r.delivery()
	now := d.At.UTC()
	data := asyncflow.FinalTask{Status: status, Stage: r.cfg.Stage, Key: "verify", Attempts: 1,
		CreatedAt: now.Add(-time.Second), FinishedAt: now}
	if status == asyncflow.StatusSucceeded {
		data.Result = r.cfg.Context
		if result != nil {
			data.Result = result
		}
	} else {
		data.Error = "an event of asyncflow verify"
	}
	e := asyncflow.NewFinalEvent(d.Lease.ID, d.Lease.Seq, data)
	d.Lease.Context = e.Document()
	d.Lease.Options.Notification = &asyncflow.Notification{Event: e.ID, Task: e.Data.ID,
		URL: r.cfg.URL}
	return d
}

// tell sends an event.
func (r *rehearsal) tell(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	return r.sender.Send(ctx, []asyncflow.Delivery{d})[0]
}
