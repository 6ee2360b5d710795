package callbacks

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// notify sends the event of the end of a task: a delivery with the event as its body and the id of
// the event. The event goes to its own URL, unless the endpoint was moved to another
// origin. Any 2xx says that it was received, so a receiver needs to know nothing else.
func (s *Sender) notify(
	ctx context.Context, d *asyncflow.Delivery, l limit,
) (asyncflow.Outcome, exchange) {
	to, err := s.open(d.Tenant, d.Endpoint)
	if err != nil {
		return failed(err), exchange{}
	}
	n := d.Lease.Options.Notification
	url := d.Endpoint.URL
	if n.URL != url && asyncflow.SameOrigin(n.URL, url) {
		url = n.URL
		own := *to
		if own.target, err = s.target(url); err != nil {
			return failed(err), exchange{}
		}
		to = &own
	}
	x, err := s.post(ctx, l, d.Endpoint, to, message{id: n.Event, at: d.At, body: d.Lease.Context,
		maxAnswer: s.maxAnswer(1), trace: d.Traceparent})
	var o asyncflow.Outcome
	switch {
	case err != nil:
		o = failed(err)
	case x.answer.Status/100 == 2:
		o = asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: x.answer.Status}
	default:
		o, _ = readStatus(x.answer, nil)
	}
	o.Error = x.scrub(o.Error)
	o.Endpoint = url
	return o, x
}
