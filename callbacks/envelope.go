package callbacks

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
)

// body returns the body of a request. If the endpoint takes batches, it is an object
// {"deliveries": […]}; otherwise it is the one delivery.
func (s *Sender) body(all []asyncflow.Delivery) []byte {
	size := 0
	for i := range all {
		size += envelopeBytes + len(s.cfg.PublicURL) + all[i].Lease.Size() +
			len(all[i].Lease.Past)*pastBytes + s.linksSize(&all[i])
	}
	b := make([]byte, 0, size)
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

// envelopeBytes is roughly what an envelope takes in addition to its context and the public URL.
const envelopeBytes = 600

// appendEnvelope appends a delivery. It copies the context's bytes and doesn't parse them. Names
// and ids never need JSON escapes; the public URL is checked at start.
func (s *Sender) appendEnvelope(b []byte, d *asyncflow.Delivery) []byte {
	l := &d.Lease
	b = append(b, `{"task_id":"`...)
	b = l.ID.Append(b)
	b = append(b, `","type":"`...)
	b = append(b, l.ID.Type...)
	b = append(b, '"')
	if d.TypeVersion > 0 {
		b = append(b, `,"type_version":`...)
		b = strconv.AppendInt(b, int64(d.TypeVersion), 10)
	}
	b = append(b, `,"stage":"`...)
	b = append(b, l.Stage...)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(l.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	b = strconv.AppendInt(b, int64(d.MaxAttempts), 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, int64(l.Seq), 10)
	if d.Test {
		b = append(b, `,"test":true`...)
	}
	b = append(b, `,"deadline":"`...)
	b = d.Deadline.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","context":`...)
	b = append(b, l.Context...)
	if l.Checkpoint != nil {
		b = append(b, `,"checkpoint":`...)
		b = append(b, l.Checkpoint...)
	}
	if len(l.Past) > 0 {
		b = s.appendPast(b, l)
	}
	if !l.Options.Labels.IsZero() {
		b = appendLabels(b, &l.Options.Labels)
	}
	if d.Traceparent != "" {
		b = append(b, `,"traceparent":"`...)
		b = append(append(b, d.Traceparent...), '"')
	}
	if l.Options.Child != nil {
		b = appendFanOut(b, l)
	} else if len(d.Links) > 0 {
		b = s.appendLinks(b, d)
	}
	b = append(b, `,"callback":{"url":"`...)
	b = s.appendCallbackURL(b, l)
	b = append(b, `","token":"`...)
	if d.Test {
		return append(b, TestToken+`"}}`...)
	}
	b = s.keys.appendCompletionToken(b, Completion{
		Tenant:   d.Tenant,
		Task:     l.ID,
		Seq:      l.Seq,
		Expiry:   latest(d).Add(lateReports),
		Endpoint: endpointOf(d),
		Claimer:  l.Claimer,
	})
	return append(b, `"}}`...)
}

// appendCallbackURL appends where to report on a delivery.
func (s *Sender) appendCallbackURL(b []byte, l *asyncflow.Lease) []byte {
	b = append(b, s.cfg.PublicURL...)
	b = append(b, "/v1/callbacks/"...)
	return l.ID.Append(b)
}

// latest returns until when an attempt may take.
func latest(d *asyncflow.Delivery) time.Time {
	if d.Latest.After(d.Deadline) {
		return d.Latest
	}
	return d.Deadline
}

// AppendDelivery appends a delivery as a claimer gets it: as a push would be.
func (s *Sender) AppendDelivery(b []byte, d *asyncflow.Delivery) []byte {
	return s.appendEnvelope(b, d)
}

// endpointOf returns the id of the endpoint of a delivery; "": it was claimed.
func endpointOf(d *asyncflow.Delivery) string {
	if d.Endpoint == nil {
		return ""
	}
	return d.Endpoint.ID
}

// appendFanOut appends which part of its parent's work a child is.
func appendFanOut(b []byte, l *asyncflow.Lease) []byte {
	c := l.Options.Child
	b = append(b, `,"fan_out":{"parent":"`...)
	b = asyncflow.TaskID{Type: l.ID.Type, Number: c.Parent}.Append(b)
	b = append(b, `","index":`...)
	b = strconv.AppendInt(b, int64(c.Index), 10)
	b = append(b, `,"count":`...)
	b = strconv.AppendInt(b, int64(c.Count), 10)
	if c.Shard {
		b = append(b, `,"shard_index":`...)
		b = strconv.AppendInt(b, int64(c.Index), 10)
		b = append(b, `,"shard_count":`...)
		b = strconv.AppendInt(b, int64(c.Count), 10)
	}
	if len(c.Shared) > 0 {
		b = append(b, `,"shared":`...)
		b = append(b, c.Shared...)
	}
	return append(b, '}')
}

// appendLabels appends the members of the labels that are set.
func appendLabels(b []byte, l *asyncflow.Labels) []byte {
	doc, err := json.Marshal(l)
	if err != nil || len(doc) <= len("{}") { // texts always are JSON
		return b
	}
	b = append(b, ',')
	return append(b, doc[1:len(doc)-1]...)
}

// deliveryID returns the id of a delivery: the task and the attempt's seq. A request with several
// deliveries bears the id of the first one, which is unique, too.
func deliveryID(l asyncflow.Lease) string {
	b := append(l.ID.Append(make([]byte, 0, 64)), '.')
	return string(strconv.AppendInt(b, int64(l.Seq), 10))
}

// lateReports is how long a token verifies after the deadline of its attempt. A worker that is
// late, or missed the answer to its report, can still learn the result.
const lateReports = time.Hour
