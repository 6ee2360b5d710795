package asyncflow

import (
	"slices"
	"strings"
)

// MaxSearchable bounds the searchable fields of a task type. Each takes a row of a table, of some
// 80 bytes, for each value of a task.
const MaxSearchable = 5

// The searchable fields. An entry of the metadata is SearchMetadata and its name.
const (
	SearchUser     = "user"
	SearchTags     = "tags"
	SearchFlowKey  = "flow_key"
	SearchMetadata = "metadata."
)

// checkSearchable checks the fields by which tasks are to be found.
func (t TaskType) checkSearchable(out *problems) {
	if n := len(t.Searchable); n > MaxSearchable {
		out.add("searchable", "has %d fields; the limit is %d", n, MaxSearchable)
		return
	}
	for i, field := range t.Searchable {
		switch {
		case !isSearchable(field):
			out.add("searchable", "has %q; a field is user, tags, flow_key, or metadata. and the "+
				"name of an entry: up to %d letters, digits and _ . : / -, beginning with a "+
				"letter or digit", shortened(field), MaxMetadataName)
		case slices.Contains(t.Searchable[:i], field):
			out.add("searchable", "has %q twice", field)
		}
	}
}

func isSearchable(field string) bool {
	name, isMetadata := strings.CutPrefix(field, SearchMetadata)
	if isMetadata {
		return len(name) <= MaxMetadataName && labelName.MatchString(name)
	}
	return field == SearchUser || field == SearchTags || field == SearchFlowKey
}

// shortened returns the beginning of a text that is too long for a message.
func shortened(text string) string {
	const most = len(SearchMetadata) + MaxMetadataName
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// SearchValues calls do with the values of a task with the options in a searchable field.
func (o *Options) SearchValues(field string, do func(value string)) {
	switch field {
	case SearchUser:
		if o.User != "" {
			do(o.User)
		}
	case SearchFlowKey:
		if o.FlowKey != "" {
			do(o.FlowKey)
		}
	case SearchTags:
		for _, tag := range o.Tags {
			do(tag)
		}
	default:
		if value, ok := o.Metadata[strings.TrimPrefix(field, SearchMetadata)]; ok {
			do(value)
		}
	}
}
