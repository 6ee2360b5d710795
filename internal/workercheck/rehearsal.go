package workercheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// rehearsal is what the checks send with.
type rehearsal struct {
	cfg       Config
	keys      *callbacks.Keys
	sender    *callbacks.Sender
	callbacks *callbackServer
	endpoint  *asyncflow.Endpoint
	// in the tasks' ids: another one in each run, so that no worker knows them
	position int
	tasks    int64 // how many there were so far
}

const (
	tenant     = "rehearsal"
	endpointID = "rehearsal"
)

func newRehearsal(cfg Config) (*rehearsal, error) {
	r := &rehearsal{cfg: cfg, position: 1 + int(time.Now().Unix()%(1<<20))}
	var err error
	r.keys, err = callbacks.NewKeys(callbacks.RandomBytes(callbacks.MinSecretBytes))
	if err != nil {
		return nil, err
	}
	r.endpoint = &asyncflow.Endpoint{
		ID:     endpointID,
		Type:   cfg.Type,
		Stage:  cfg.Stage,
		URL:    cfg.URL,
		Weight: 1,
		Batch:  asyncflow.Batch{MaxTasks: cfg.Batch},
	}
	if err := r.endpoint.Validate(cfg.Egress); err != nil {
		return nil, err
	}
	if err := asyncflow.CheckJSON(cfg.Context); err != nil {
		return nil, asyncflow.InvalidField("context", "%v", err)
	}
	err = asyncflow.CheckDocument("context", cfg.Context, asyncflow.DefaultMaxContext)
	if err != nil {
		return nil, err
	}
	if err := cfg.checkFields(); err != nil {
		return nil, err
	}
	if r.endpoint, err = r.signedBy(cfg.Secret); err != nil {
		return nil, err
	}
	if r.callbacks, err = newCallbackServer(cfg, r.keys); err != nil {
		return nil, err
	}
	r.sender = callbacks.NewSender(callbacks.Config{
		PublicURL: r.callbacks.url,
		Version:   cfg.Version,
		Egress:    cfg.Egress,
	}, r.keys)
	return r, nil
}

// signedBy returns the endpoint with other secrets.
func (r *rehearsal) signedBy(secrets ...string) (*asyncflow.Endpoint, error) {
	e := *r.endpoint
	e.Secrets = nil
	for _, secret := range secrets {
		s, err := r.keys.SigningSecret(secret, e.ID, time.Now())
		if err != nil {
			return nil, err
		}
		e.Secrets = append(e.Secrets, s)
	}
	return &e, nil
}

// endpointWithOtherSecret returns the endpoint with a secret that the worker doesn't know, of the
// same kind.
func (r *rehearsal) endpointWithOtherSecret() (*asyncflow.Endpoint, error) {
	secret, err := signing.NewSecretOf(r.endpoint.Secrets[0].Kind)
	if err != nil {
		return nil, err
	}
	return r.signedBy(secret)
}

// delivery returns the first attempt at a new task, to be sent now.
func (r *rehearsal) delivery() asyncflow.Delivery {
	r.tasks++
	now := time.Now()
	return asyncflow.Delivery{
		Tenant: tenant,
		Lease: asyncflow.Lease{ID: asyncflow.NewTaskID(r.cfg.Type, r.position, r.tasks), Seq: 1,
			Stage: r.cfg.Stage, Attempt: 1,
			Context: r.cfg.Context, Past: past(r.cfg.Input, r.cfg.Outputs)},
		Endpoint:    r.endpoint,
		MaxAttempts: 5,
		At:          now,
		Timeout:     r.cfg.Timeout,
		Deadline:    now.Add(r.cfg.ReportTime),
		Links:       waitLinks(r.cfg.Links),
	}
}

// padded returns the context, padded to size bytes with spaces.
func (r *rehearsal) padded(size int) json.RawMessage {
	c := bytes.Clone(r.cfg.Context)
	return append(c, bytes.Repeat([]byte(" "), max(0, size-len(c)))...)
}

// ending is the end of a delivery.
type ending struct {
	outcome asyncflow.Outcome
	attempt *attempt // of the task, if it was accepted
	limit   time.Duration
}

// send sends some deliveries in one request, and waits for the reports on accepted ones.
func (r *rehearsal) send(ctx context.Context, all ...asyncflow.Delivery) []ending {
	attempts := r.expect(all)
	return r.endings(ctx, attempts, r.sender.Send(ctx, all))
}

// sendAltered is send of a request that is changed after it was signed.
func (r *rehearsal) sendAltered(
	ctx context.Context, d asyncflow.Delivery, alter func(*http.Request, []byte) error,
) ending {
	attempts := r.expect([]asyncflow.Delivery{d})
	return r.endings(ctx, attempts, r.sender.Rehearse(ctx, []asyncflow.Delivery{d}, alter))[0]
}

func (r *rehearsal) expect(all []asyncflow.Delivery) []*attempt {
	attempts := make([]*attempt, len(all))
	for i, d := range all {
		attempts[i] = r.callbacks.expect(d.Lease.ID, d.Lease.Seq)
	}
	return attempts
}

func (r *rehearsal) endings(
	ctx context.Context, attempts []*attempt, outcomes []asyncflow.Outcome,
) []ending {
	limit := time.Now().Add(r.cfg.ReportTime)
	endings := make([]ending, len(outcomes))
	for i, o := range outcomes {
		endings[i] = ending{outcome: o, limit: r.cfg.ReportTime}
		if o.Kind == asyncflow.OutcomeAccepted {
			endings[i].attempt = attempts[i]
			attempts[i].await(ctx, limit, func(seen []report) bool {
				_, ok := lastWord(seen)
				return ok
			})
		}
	}
	return endings
}

// problem returns the reason why a delivery isn't done; "": it is.
func (e ending) problem() string {
	switch e.outcome.Kind {
	case asyncflow.OutcomeDone:
		if err := checkSpawn(e.outcome); err != nil {
			return err.Error()
		}
		return ""
	case asyncflow.OutcomeAccepted:
		return e.attempt.problem(e.limit)
	case asyncflow.OutcomeRejected:
		return "it failed the task for good: " + e.outcome.Error
	case asyncflow.OutcomeCancelled:
		return "it cancelled the task: " + e.outcome.Error
	case asyncflow.OutcomeSnoozed:
		return "it " + putOff(e.outcome.Error)
	}
	return e.outcome.Error
}

// putOff says that a worker snoozed a task.
func putOff(why string) string {
	text := "put the task off with snooze; give --context of a task that is ready"
	if why == "" {
		return text
	}
	return text + ": " + why
}

// describe says how a delivery was done.
func (e ending) describe() string {
	text := "accepted, and reported as done"
	if e.attempt == nil {
		text = fmt.Sprintf("answered %d in %s", e.outcome.Status,
			e.outcome.Duration.Round(time.Millisecond))
	}
	done := e.done()
	for _, part := range []string{choiceOf(done).String(), startText(done)} {
		if part != "" {
			text += ", with " + part
		}
	}
	return text
}

// allDone is the finding that deliveries are done, or why they aren't.
func allDone(endings ...ending) finding {
	for _, e := range endings {
		if why := e.problem(); why != "" {
			return failed("%s", why)
		}
	}
	return passed("%s", endings[0].describe())
}

// same reports whether two outputs are the same document.
func same(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	p, _ := json.Marshal(x) // with the keys in order
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}
