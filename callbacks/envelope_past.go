package callbacks

import (
	"strconv"

	"github.com/asyncflow/asyncflow"
)

// pastBytes is roughly what a document of the past takes in addition to its bytes, or instead of
// them.
const pastBytes = 200

// appendPast appends what a stage asks for besides the context: input and outputs. For documents
// that are too long their URL and length stand there instead, and by_url names them: a document of
// the same form is possible, too.
func (s *Sender) appendPast(b []byte, l *asyncflow.Lease) []byte {
	past := l.Past
	if past[0].Stage == "" {
		b = s.appendDocument(append(b, `,"input":`...), l, &past[0])
		past = past[1:]
	}
	for i := range past {
		if i == 0 {
			b = append(b, `,"outputs":{"`...)
		} else {
			b = append(b, `,"`...)
		}
		b = append(append(b, past[i].Stage...), `":`...)
		b = s.appendDocument(b, l, &past[i])
	}
	if len(past) > 0 {
		b = append(b, '}')
	}
	return appendLinked(b, l.Past)
}

func (s *Sender) appendDocument(
	b []byte, l *asyncflow.Lease, doc *asyncflow.PastDocument,
) []byte {
	switch {
	case doc.Bytes == 0:
		return append(b, "null"...)
	case !doc.Linked():
		return append(b, doc.JSON...)
	}
	b = s.appendCallbackURL(append(b, `{"url":"`...), l)
	if doc.Stage == "" {
		b = append(b, "/input"...)
	} else {
		b = append(append(b, "/outputs/"...), doc.Stage...)
	}
	b = strconv.AppendInt(append(b, `","bytes":`...), int64(doc.Bytes), 10)
	return append(b, '}')
}

// appendLinked appends the names of the documents that are given by URL; without any, nothing.
func appendLinked(b []byte, past []asyncflow.PastDocument) []byte {
	before := `,"by_url":["`
	for i := range past {
		if !past[i].Linked() {
			continue
		}
		b = append(b, before...)
		before = `,"`
		if past[i].Stage == "" {
			b = append(b, `input"`...)
		} else {
			b = append(append(append(b, "outputs."...), past[i].Stage...), '"')
		}
	}
	if before == `,"` {
		b = append(b, ']')
	}
	return b
}
