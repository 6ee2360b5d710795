package workercheck

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// reached is the check that all others need.
var reached = check{"reached",
	"start the worker, and check the URL; allow plain http or a private network as on a node",
	func(ctx context.Context, r *rehearsal) finding {
		all := []asyncflow.Delivery{r.delivery()}
		r.expect(all)
		o := r.sender.Send(ctx, all)[0]
		if o.Status == 0 { // it may be this delivery that it can't take
			o = r.sender.Rehearse(ctx, all, func(req *http.Request, _ []byte) error {
				req.Header.Del("Webhook-Signature")
				return nil
			})[0]
		}
		if o.Status == 0 {
			return failed("%s", o.Error)
		}
		return passed("answered %d", o.Status)
	}}

// delivered is the check of a plain delivery.
var delivered = check{"delivery",
	`answer 200 with an empty body or {"output": …} as application/json; ` +
		`give a context that the worker can process with --context`,
	func(ctx context.Context, r *rehearsal) finding {
		return allDone(r.send(ctx,
			r.delivery())...)
	}}

// trust are the checks that a worker believes only requests of asyncflow.
var trust = []check{
	{"challenge",
		`answer a signed {"type": "asyncflow.challenge", "challenge": "…"} ` +
			`with 200 and the same challenge`,
		func(ctx context.Context, r *rehearsal) finding {
			if err := r.sender.Challenge(ctx, tenant, *r.endpoint, time.Now()); err != nil {
				return failed("%s", err)
			}
			return passed("echoed")
		}},
	{"challenge by a stranger", "verify the signature before you look at what a request says",
		func(ctx context.Context, r *rehearsal) finding {
			e, err := r.endpointWithOtherSecret()
			if err != nil {
				return failed("%s", err)
			}
			if r.sender.Challenge(ctx, tenant, *e, time.Now()) == nil {
				return failed("echoed, though it was signed with another secret")
			}
			return passed("not echoed")
		}},
	{"bad signature",
		"compare the signatures of Webhook-Signature with your own, and answer 401 if none is " +
			"the same",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.delivery()
			var err error
			if d.Endpoint, err = r.endpointWithOtherSecret(); err != nil {
				return failed("%s", err)
			}
			return refused(r.send(ctx, d)[0].outcome, "signed with another secret")
		}},
	{"altered body",
		"sign the bytes of the body as they came, before parsing, and answer 401 if that isn't " +
			"the signature",
		func(ctx context.Context, r *rehearsal) finding {
			return refused(r.sendAltered(ctx, r.delivery(),
				func(req *http.Request, body []byte) error {
					setBody(req, withUnknown(body))
					return nil
				}).outcome, "changed after it was signed")
		}},
	{"missing headers", "answer 401 if Webhook-Id, Webhook-Timestamp or Webhook-Signature is " +
		"missing",
		missingHeaders},
	{"old timestamp",
		"answer 401 if Webhook-Timestamp is more than 5 minutes away from now, also if the " +
			"signature is good",
		signedAt(-2*signing.Tolerance, "signed 10 minutes ago")},
	{"timestamp ahead",
		"answer 401 if Webhook-Timestamp is more than 5 minutes away from now, in the future too",
		signedAt(2*signing.Tolerance, "signed with a time 10 minutes ahead")},
}

// refused is the finding that a delivery was refused, as it must be.
func refused(o asyncflow.Outcome, what string) finding {
	switch {
	case o.Status == 0:
		return failed("a delivery that was %s: %s", what, o.Error)
	case o.Status < 400 || o.Status > 499:
		return failed("a delivery that was %s was answered with %d", what, o.Status)
	}
	return passed("answered %d", o.Status)
}

func missingHeaders(ctx context.Context, r *rehearsal) finding {
	f := finding{}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		o := r.sendAltered(ctx, r.delivery(), func(req *http.Request, _ []byte) error {
			req.Header.Del(name)
			return nil
		}).outcome
		if f = refused(o, "sent without "+name); f.result == Failed {
			return f
		}
	}
	return f
}

// signedAt returns a check that sends a request signed at another time than now.
func signedAt(away time.Duration, what string) func(context.Context, *rehearsal) finding {
	return func(ctx context.Context, r *rehearsal) finding {
		d := r.delivery()
		d.At = d.At.Add(away)
		return refused(r.send(ctx, d)[0].outcome, what)
	}
}

// resign signs a request for its present body.
func (r *rehearsal) resign(req *http.Request, body []byte) error {
	signer, err := signing.NewSigner(r.cfg.Secret)
	if err != nil {
		return err
	}
	id := req.Header.Get("Webhook-Id")
	if id == "" {
		return errors.New("the request has no id")
	}
	return signing.Sign(req.Header, id, time.Now(), body, []signing.Signer{signer})
}
