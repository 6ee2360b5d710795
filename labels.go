package asyncflow

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of Labels. All of them together, as JSON, take at most MaxLabels bytes: with them, the
// options of a task that is no child stay below 16 KiB (see records.IsChildSQL).
const (
	MaxLabels        = 2 << 10 // bytes
	MaxUser          = 255     // bytes
	MaxTags          = 16
	MaxTag           = 64 // bytes
	MaxMetadata      = 16
	MaxMetadataName  = 40  // bytes
	MaxMetadataValue = 255 // bytes
)

// Labels say what a task is about, so that people find it. asyncflow doesn't act on them. They are
// fixed at the submit, and shown with the task, in deliveries and in logs: they must not be secret.
type Labels struct {
	User     string            `json:"user,omitempty"` // for whom it is done
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Trace is a W3C traceparent: the trace that the submit was a part of.
	Trace string `json:"trace,omitempty"`
}

// IsZero reports whether there are none.
func (l *Labels) IsZero() bool {
	return l.User == "" && len(l.Tags) == 0 && len(l.Metadata) == 0 && l.Trace == ""
}

var (
	labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]*$`)
	// traceparent is one of the version 00, the only one so far.
	traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
)

func (l *Labels) check(out *problems) {
	if l.IsZero() {
		return
	}
	checkLabel(out, "user", l.User, MaxUser)
	l.checkTags(out)
	l.checkMetadata(out)
	if l.Trace != "" && !isTraceparent(l.Trace) {
		out.add("trace", "must be a W3C traceparent, such as "+
			"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	}
	if doc, err := json.Marshal(l); err == nil && len(doc) > MaxLabels {
		out.add("metadata", "has %d bytes, with user, tags and trace; the limit is %d", len(doc),
			MaxLabels)
	}
}

func (l *Labels) checkTags(out *problems) {
	if n := len(l.Tags); n > MaxTags {
		out.add("tags", "has %d entries; the limit is %d", n, MaxTags)
		return
	}
	for i, tag := range l.Tags {
		switch {
		case len(tag) > MaxTag:
			out.add("tags", "has a tag of %d bytes; the limit is %d", len(tag), MaxTag)
		case !labelName.MatchString(tag):
			out.add("tags", "has %q; a tag is letters, digits and _ . : / -, and begins with a "+
				"letter or digit", tag)
		case slices.Contains(l.Tags[:i], tag):
			out.add("tags", "has %q twice", tag)
		}
	}
}

func (l *Labels) checkMetadata(out *problems) {
	if n := len(l.Metadata); n > MaxMetadata {
		out.add("metadata", "has %d entries; the limit is %d", n, MaxMetadata)
		return
	}
	for name, value := range l.Metadata {
		if len(name) > MaxMetadataName || !labelName.MatchString(name) {
			out.add("metadata", "has the name %q; a name is up to %d letters, digits and "+
				"_ . : / -, and begins with a letter or digit", name, MaxMetadataName)
			return
		}
		checkLabel(out, "metadata."+name, value, MaxMetadataValue)
	}
}

func checkLabel(out *problems, field, value string, most int) {
	switch {
	case len(value) > most:
		out.add(field, "is %d bytes long; the limit is %d", len(value), most)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		out.add(field, "must be UTF-8 without NUL")
	}
}

// isTraceparent reports whether a text is a traceparent with ids that aren't zero.
func isTraceparent(text string) bool {
	return traceparent.MatchString(text) && text[3:35] != strings.Repeat("0", 32) &&
		text[36:52] != strings.Repeat("0", 16)
}

// AddTrace sets the trace, unless there is one, or they would be longer than MaxLabels.
func (l *Labels) AddTrace(traceparent string) {
	if l.Trace != "" {
		return
	}
	l.Trace = traceparent
	if doc, err := json.Marshal(l); err != nil || len(doc) > MaxLabels {
		l.Trace = ""
	}
}

// attrs returns them for a log. The trace goes by the names that log pipelines know.
func (l *Labels) attrs() (attrs []slog.Attr) {
	if l.User != "" {
		attrs = append(attrs, slog.String("user", l.User))
	}
	if len(l.Tags) > 0 {
		attrs = append(attrs, slog.Any("tags", l.Tags))
	}
	if len(l.Metadata) > 0 {
		attrs = append(attrs, slog.Any("metadata", l.Metadata))
	}
	if isTraceparent(l.Trace) {
		attrs = append(attrs, slog.String("trace_id", l.Trace[3:35]))
	}
	return attrs
}

// IsLabelName reports whether a text can be a tag, or the name of an entry of Metadata.
func IsLabelName(text string) bool { return len(text) <= MaxTag && labelName.MatchString(text) }
