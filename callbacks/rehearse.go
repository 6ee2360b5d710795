package callbacks

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Rehearse is Send for trying out a worker: the signed request may be altered before it is
// sent, and is given to alter together with its body. An error of alter's ends it. It applies
// no settings of the endpoint (see asyncflow.Outbound).
func (s *Sender) Rehearse(ctx context.Context, all []asyncflow.Delivery, alter func(req *http.Request, body []byte) error) []asyncflow.Outcome {
	first, start := all[0], time.Now()
	ctx, cancel := context.WithTimeout(ctx, first.Timeout)
	defer cancel()
	body := s.appendBody(nil, all)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, first.Endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return toAll(all, failed(err))
	}
	to, err := s.open(first.Tenant, first.Endpoint)
	if err == nil {
		var signed headers
		signed, err = s.appendHeaders(nil, first.Endpoint, to, deliveryID(first.Lease), first.At, body)
		for _, h := range signed {
			req.Header[h.Name] = []string{h.Value}
		}
	}
	if err == nil {
		err = alter(req, body)
	}
	var resp *http.Response
	if err == nil {
		resp, err = s.client.HTTPClient.Do(req)
	}
	if err != nil {
		return toAll(all, failed(reason(ctx, err, first.Timeout)))
	}
	outcomes := s.read(ctx, all, resp)
	for i := range outcomes {
		outcomes[i].Endpoint, outcomes[i].Duration = first.Endpoint.URL, time.Since(start)
	}
	return outcomes
}
