package callbacks

import (
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
)

// body returns the body of the request for some deliveries: the one as it is, or, if the
// endpoint gets several, in an object {"deliveries": […]}.
func (s *Sender) body(all []asyncflow.Delivery) []byte {
	size := 0
	for i := range all {
		size += envelopeBytes + len(s.cfg.PublicURL) + len(all[i].Lease.Context)
	}
	batch := !all[0].Endpoint.Batch.IsZero()
	b := make([]byte, 0, size)
	if batch {
		b = append(b, `{"deliveries":[`...)
	}
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEnvelope(b, &all[i], s.cfg.PublicURL, s.token(&all[i]))
	}
	if batch {
		b = append(b, "]}"...)
	}
	return b
}

// token returns the completion token of a delivery.
func (s *Sender) token(d *asyncflow.Delivery) string {
	return s.keys.CompletionToken(Completion{Tenant: d.Tenant, Task: d.Lease.ID, Seq: d.Lease.Seq, Expiry: d.Deadline.Add(lateReports), Endpoint: d.Endpoint.ID})
}

// envelopeBytes is about what an envelope has besides its context and the operator's URL.
const envelopeBytes = 600

// appendEnvelope appends a delivery. It is put together around the bytes of the context,
// which are not parsed. Names and ids need no escapes by their rules; base is the
// operator's URL, checked at start.
func appendEnvelope(b []byte, d *asyncflow.Delivery, base, token string) []byte {
	l := &d.Lease
	id := l.ID.String()
	b = append(b, `{"task_id":"`...)
	b = append(b, id...)
	b = append(b, `","type":"`...)
	b = append(b, l.ID.Type...)
	b = append(b, `","stage":"`...)
	b = append(b, l.Stage...)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(l.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	b = strconv.AppendInt(b, int64(d.MaxAttempts), 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, int64(l.Seq), 10)
	b = append(b, `,"deadline":"`...)
	b = d.Deadline.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","context":`...)
	b = append(b, l.Context...)
	b = append(b, `,"callback":{"url":"`...)
	b = append(b, base...)
	b = append(b, "/v1/callbacks/"...)
	b = append(b, id...)
	b = append(b, `","token":"`...)
	b = append(b, token...)
	return append(b, `"}}`...)
}

// deliveryID returns the id of a delivery: the task's and the attempt's seq. A request with
// several has that of the first, which is no other's.
func deliveryID(l asyncflow.Lease) string { return l.ID.String() + "." + strconv.Itoa(l.Seq) }
