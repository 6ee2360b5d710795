package callbacks

import (
	"slices"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
)

// appendBody appends the body of the request for some deliveries: the one as it is, or, if the
// endpoint gets several, in an object {"deliveries": […]}.
func (s *Sender) appendBody(b []byte, all []asyncflow.Delivery) []byte {
	size := 0
	for i := range all {
		size += envelopeBytes + len(s.cfg.PublicURL) + len(all[i].Lease.Context)
	}
	b = slices.Grow(b, size)
	batch := !all[0].Endpoint.Batch.IsZero()
	if batch {
		b = append(b, `{"deliveries":[`...)
	}
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendEnvelope(b, &all[i])
	}
	if batch {
		b = append(b, "]}"...)
	}
	return b
}

// envelopeBytes is about what an envelope has besides its context and the operator's URL.
const envelopeBytes = 600

// appendEnvelope appends a delivery. It is put together around the bytes of the context,
// which are not parsed. Names and ids need no escapes by their rules; the operator's URL
// is checked at start.
func (s *Sender) appendEnvelope(b []byte, d *asyncflow.Delivery) []byte {
	l := &d.Lease
	b = append(b, `{"task_id":"`...)
	b = l.ID.Append(b)
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
	b = append(b, s.cfg.PublicURL...)
	b = append(b, "/v1/callbacks/"...)
	b = l.ID.Append(b)
	b = append(b, `","token":"`...)
	b = s.keys.appendCompletionToken(b, Completion{
		Tenant:   d.Tenant,
		Task:     l.ID,
		Seq:      l.Seq,
		Expiry:   d.Deadline.Add(lateReports),
		Endpoint: d.Endpoint.ID,
	})
	return append(b, `"}}`...)
}

// deliveryID returns the id of a delivery: the task's and the attempt's seq. A request with
// several has that of the first, which is no other's.
func deliveryID(l asyncflow.Lease) string {
	b := append(l.ID.Append(make([]byte, 0, 64)), '.')
	return string(strconv.AppendInt(b, int64(l.Seq), 10))
}

// lateReports is how long after the deadline of an attempt its token still verifies,
// so that a worker that is late, or didn't get the answer to its report, hears what
// became of it.
const lateReports = time.Hour
