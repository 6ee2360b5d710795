package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// Registration says where asyncflow is, and where it can reach this worker.
type Registration struct {
	// Client needs a token with the scopes read and manage.
	Client *client.Client
	// URL is where deliveries are sent, the same for all handlers.
	URL string
	// Prepare, if it is set, may change an endpoint before it is created: its limits, weight,
	// headers, …
	Prepare func(*client.NewEndpoint)
}

// Register makes sure that there is an endpoint with the URL in the stage of each handler, and that
// its deliveries verify here: it challenges each endpoint. So the task types must exist, and the
// worker must be served before. Register doesn't change an existing endpoint.
//
// A new endpoint gets the first secret (whsec_) of Config.Keys. If there is none, asyncflow makes
// an ed25519 key, and the Worker learns its public key. It also learns the public keys of existing
// endpoints. So a worker that registers itself needs no key of its own.
//
// While asyncflow can't be reached, Register tries again, until ctx ends.
func (w *Worker) Register(ctx context.Context, r Registration) error {
	if r.Client == nil {
		return asyncflow.InvalidField("Client", "is required")
	}
	for _, name := range w.stages() {
		for wait := reportMinWait; ; wait = min(2*wait, reportMaxWait) {
			err := w.register(ctx, r, name)
			if err == nil {
				break
			}
			if !isPassing(err) || ctx.Err() != nil {
				return fmt.Errorf("worker.Register %s/%s: %w", name.taskType, name.stage, err)
			}
			w.cfg.Log.Warn("not registered yet", "type", name.taskType, "stage", name.stage,
				"error", err)
			sleep.For(ctx, wait)
		}
	}
	return nil
}

// isPassing reports whether to register again. After a lost answer, that finds the endpoint.
func isPassing(err error) bool {
	code := asyncflow.CodeOf(err)
	return code == asyncflow.CodeUnavailable || code == asyncflow.CodeUncertain
}

// register makes sure that there is an endpoint in one stage.
func (w *Worker) register(ctx context.Context, r Registration, name stageName) error {
	if err := w.checkTime(ctx, r, name); err != nil {
		return err
	}
	e, found, err := w.endpointOf(ctx, r, name)
	if err == nil && !found {
		e, err = w.createEndpoint(ctx, r, name)
	}
	if err != nil {
		return err
	}
	if err := w.addKeys(e); err != nil {
		return err
	}
	if e, err = r.Client.VerifyEndpoint(ctx, e.ID); err != nil {
		return err
	}
	if e.VerificationError != "" {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"the endpoint %s (%s) didn't echo its challenge: %s", e.ID, e.URL, e.VerificationError)
	}
	w.cfg.Log.Info("registered", "type", name.taskType, "stage", name.stage,
		"endpoint", e.ID, "url", e.URL, "new", !found)
	return nil
}

// checkTime refuses a handler with deliveries that would time out before they are answered.
func (w *Worker) checkTime(ctx context.Context, r Registration, name stageName) error {
	t, err := r.Client.TaskType(ctx, name.taskType)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(t.Stages, func(s client.Stage) bool { return s.Name == name.stage })
	if i < 0 {
		return asyncflow.Errorf(asyncflow.CodeNotFound, "the task type %s has no stage %s",
			name.taskType, name.stage)
	}
	within, timeout := w.handlerOf(name).answerWithin, t.Stages[i].Timeout.Std()
	if within >= timeout {
		return asyncflow.InvalidField("AnswerWithin",
			"is %s; it must be below the stage's timeout of %s", within, timeout)
	}
	return nil
}

// endpointOf returns the endpoint of a stage with the URL. If other processes of this worker
// created some at the same time, it returns the oldest.
func (w *Worker) endpointOf(
	ctx context.Context, r Registration, name stageName,
) (e client.Endpoint, found bool, err error) {
	all, err := r.Client.Endpoints(ctx, name.taskType)
	if err != nil {
		return e, false, err
	}
	all = slices.DeleteFunc(
		all,
		func(e client.Endpoint) bool {
			return e.Stage != name.stage || !asyncflow.SameURL(e.URL, r.URL)
		},
	)
	if len(all) == 0 {
		return e, false, nil
	}
	return slices.MinFunc(all, func(a, b client.Endpoint) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	}), true, nil
}

// createEndpoint creates an endpoint, or returns the one that another process created first.
func (w *Worker) createEndpoint(
	ctx context.Context, r Registration, name stageName,
) (client.Endpoint, error) {
	fresh := client.NewEndpoint{
		Type:       name.taskType,
		Stage:      name.stage,
		URL:        r.URL,
		SecretKind: asyncflow.SecretEd25519,
	}
	if i := slices.IndexFunc(w.cfg.Keys, signing.IsSecret); i >= 0 {
		fresh.Secret, fresh.SecretKind = w.cfg.Keys[i], asyncflow.SecretHMAC
	}
	if r.Prepare != nil {
		r.Prepare(&fresh)
	}
	made, err := r.Client.CreateEndpoint(ctx, fresh)
	if asyncflow.CodeOf(err) != asyncflow.CodeConflict {
		return made, err
	}
	first, found, lookErr := w.endpointOf(ctx, r, name)
	if lookErr != nil || !found {
		return made, err
	}
	return first, nil
}

// addKeys adds the public keys of an endpoint to the ones that verify.
func (w *Worker) addKeys(e client.Endpoint) error {
	for _, s := range e.Secrets {
		if s.PublicKey == "" || !w.isNewKey(s.PublicKey) {
			continue
		}
		if err := w.verifier.Add(s.PublicKey); err != nil {
			return err
		}
	}
	return nil
}

// isNewKey reports whether a key is new to the worker.
func (w *Worker) isNewKey(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.cfg.Keys, key) || w.learned[key] {
		return false
	}
	w.learned[key] = true
	return true
}
