package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// listenStage is a stage with forwarded deliveries.
type listenStage struct {
	taskType, name string
	timeout        time.Duration // for an answer
	processing     time.Duration // for which a claim stands after a heartbeat
	endpoint       client.Endpoint
	secret         string // "": it isn't known here
}

func (s listenStage) String() string { return s.taskType + "." + s.name }

// unknownSecret says what to do if the secret isn't known here.
func (s listenStage) unknownSecret() string {
	return fmt.Sprintf("the signing secret of %s isn't known on this machine: make a new one with "+
		"asyncflow endpoints rotate-secret %s --overlap 0s, and give it with "+
		"ASYNCFLOW_ENDPOINT_SECRET",
		s, s.endpoint.ID)
}

// prepare returns the stages to listen to, each with an endpoint for listening.
func (c *listenCmd) prepare(
	ctx context.Context, api *client.Client, secrets *listenSecrets, out *listenOutput,
) ([]listenStage, error) {
	types, err := api.TaskTypes(ctx)
	if err != nil {
		return nil, err
	}
	endpoints, err := api.Endpoints(ctx, "")
	if err != nil {
		return nil, err
	}
	stages, others, err := c.choose(types, endpoints)
	if err == nil && len(stages) == 0 {
		noteLeftAlone(out, others)
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "there is no stage to listen to: "+
			"apply a task type first (asyncflow types apply), or name another with --type and "+
			"--stage")
	}
	if err != nil {
		return nil, err
	}
	if err = c.compare(stages, endpoints, secrets); err != nil {
		return nil, err
	}
	secret := c.Secret
	if secret == "" {
		secret = secrets.anySecret(endpoints)
	}
	if secret == "" {
		secret = signing.NewSecret()
	}
	for i := range stages {
		s := &stages[i]
		if err := s.listen(ctx, api, endpointsOf(endpoints, *s), secret, secrets); err != nil {
			return nil, err
		}
		if s.secret == "" && c.Secret != "" {
			s.secret = c.Secret
			out.problem("whether ASYNCFLOW_ENDPOINT_SECRET is the signing secret of %s can't be "+
				"checked: this machine doesn't know it. If your worker refuses the signatures, "+
				"make a new one with asyncflow endpoints rotate-secret %s --overlap 0s", s,
				s.endpoint.ID)
		}
	}
	noteLeftAlone(out, others) // not before it is known that the token may make endpoints
	return stages, nil
}

// noteLeftAlone names stages that nobody listens to, in one line.
func noteLeftAlone(out *listenOutput, stages []listenStage) {
	const most = 5
	var names []string
	for _, s := range stages[:min(most, len(stages))] {
		names = append(names, s.String())
	}
	if n := len(stages) - most; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	if len(names) > 0 {
		out.note("left alone: %s. To listen to one, or to see why that can't be, name it with "+
			"--type and --stage", strings.Join(names, ", "))
	}
}

// compare refuses a secret that isn't that of a stage, before anything is changed, and makes sure
// that the secrets of new endpoints can be stored.
func (c *listenCmd) compare(
	stages []listenStage, endpoints []client.Endpoint, secrets *listenSecrets,
) error {
	for _, s := range stages {
		e := listenerAmong(endpointsOf(endpoints, s))
		if e == nil {
			if err := secrets.check(); err != nil {
				return err
			}
			continue
		}
		if known := secrets.secretOf(*e); c.Secret != "" && known != "" && known != c.Secret {
			return usageError(asyncflow.InvalidField("ASYNCFLOW_ENDPOINT_SECRET",
				"isn't the signing secret of %s: "+
					"unset it to use the one that this machine knows, or make a new one with "+
					"asyncflow endpoints rotate-secret %s --overlap 0s", s, e.ID))
		}
	}
	return nil
}

// listenerAmong returns the endpoint for listening among the endpoints of a stage: the first with
// the greatest weight; nil: there is none.
func listenerAmong(own []client.Endpoint) (found *client.Endpoint) {
	for i, e := range own {
		if e.Listen && (found == nil || e.Weight > found.Weight) {
			found = &own[i]
		}
	}
	return found
}

// choose returns the stages that can be listened to, and the ones left alone, before anything
// is changed. A stage that the flags name is never left alone.
func (c *listenCmd) choose(
	types []client.TaskType, endpoints []client.Endpoint,
) (stages, others []listenStage, err error) {
	for _, name := range c.Type {
		known := func(t client.TaskType) bool { return string(t.Name) == name }
		if !slices.ContainsFunc(types, known) {
			return nil, nil, asyncflow.Errorf(asyncflow.CodeNotFound,
				"--type: there is no task type %.80q", name)
		}
	}
	for _, t := range types {
		for _, stage := range t.Stages {
			if !c.chosen(string(t.Name), stage.Name) {
				continue
			}
			s := listenStage{taskType: string(t.Name), name: stage.Name,
				timeout: stage.Timeout.Std(), processing: stage.MaxProcessingTime.Std()}
			switch why := c.unfitReason(t, stage, endpointsOf(endpoints, s)); {
			case why == "":
				stages = append(stages, s)
			case c.named():
				return nil, nil, fmt.Errorf("%s: %s", s, why)
			default:
				others = append(others, s)
			}
		}
	}
	return stages, others, nil
}

// named reports whether the flags name what to listen to.
func (c *listenCmd) named() bool { return len(c.Type)+len(c.Stage) > 0 }

func (c *listenCmd) chosen(taskType, stage string) bool {
	return taskType != asyncflow.AlertType && !asyncflow.IsTarget(taskType) &&
		(len(c.Type) == 0 || slices.Contains(c.Type, taskType)) &&
		(len(c.Stage) == 0 || slices.Contains(c.Stage, stage))
}

// endpointsOf returns the endpoints of a stage.
func endpointsOf(all []client.Endpoint, s listenStage) (own []client.Endpoint) {
	for _, e := range all {
		if string(e.Type) == s.taskType && string(e.Stage) == s.name {
			own = append(own, e)
		}
	}
	return own
}

// unfitReason returns why a stage can't be listened to, and what to do; "": it can. A stage must be
// named if the weight of its endpoints is 0.
func (c *listenCmd) unfitReason(
	t client.TaskType, stage client.Stage, own []client.Endpoint,
) string {
	for _, e := range own {
		if !e.Listen && e.Weight == 0 && !c.named() {
			return fmt.Sprintf("it has the endpoint %s with the weight 0. To listen to it all the "+
				"same, name it with --type and --stage", printable(e.URL))
		}
		if !e.Listen && e.Weight > 0 {
			return fmt.Sprintf("its deliveries go to %s. To take them over, stop these first: "+
				"asyncflow endpoints update %s --weight 0", printable(e.URL), e.ID)
		}
	}
	switch {
	case stage.Mode == asyncflow.ModeClaim:
		return "its mode is claim, so workers ask for its tasks: see asyncflow claim"
	case t.Flow != nil, t.MaxInFlight > 0, !t.Rate.IsZero():
		return "tasks of a type with flow, max_in_flight or rate can't be claimed: apply the " +
			"type without"
	}
	return ""
}

// listen finds the endpoint for listening among the stage's endpoints, or makes one.
func (s *listenStage) listen(
	ctx context.Context, api *client.Client, own []client.Endpoint, secret string,
	secrets *listenSecrets,
) (err error) {
	if e := listenerAmong(own); e != nil {
		if s.endpoint, s.secret = *e, secrets.secretOf(*e); e.Weight == 0 {
			one := 1
			_, err = api.UpdateEndpoint(ctx, e.ID, client.EndpointPatch{Weight: &one})
		}
		return err
	}
	s.endpoint, err = api.CreateEndpoint(ctx, client.NewEndpoint{Type: s.taskType, Stage: s.name,
		Listen: true, Secret: secret})
	if err != nil {
		return err
	}
	s.secret = secret
	return secrets.keep(s.endpoint, secret)
}
