package document

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlReader turns a YAML document into nodes. JSON knows no aliases, so it expands them.
type yamlReader struct {
	open    map[*yaml.Node]bool // the aliases that are being expanded
	aliased int                 // bytes and values that aliases added
}

// parseYAML reads exactly one document. The node of an empty one is null.
func parseYAML(raw []byte) (node, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var first, second yaml.Node
	switch err := d.Decode(&first); {
	case errors.Is(err, io.EOF):
		return node{}, nil
	case err != nil:
		return node{}, err
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return node{}, errors.New("it goes on after its end: only one document is read")
	}
	r := yamlReader{open: map[*yaml.Node]bool{}}
	tree := r.value(first.Content[0], 0)
	if r.aliased > maxAliased {
		return node{}, errors.New("it has aliases that stand for too much")
	}
	return tree, nil
}

func (r *yamlReader) value(n *yaml.Node, depth int) node {
	if len(r.open) > 0 {
		r.aliased += 1 + len(n.Value)
	}
	switch {
	case r.aliased > maxAliased: // parseYAML says so
		return node{}
	case depth > maxDepth:
		return invalidNode(n.Line, "is nested more than %d deep", maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.alias(n, depth)
	case yaml.SequenceNode:
		return r.list(n, depth)
	case yaml.MappingNode:
		return r.mapping(n, depth)
	}
	return scalar(n)
}

func (r *yamlReader) alias(n *yaml.Node, depth int) node {
	if r.open[n.Alias] {
		return invalidNode(n.Line, "has the alias *%s, which stands inside of what it names",
			n.Value)
	}
	r.open[n.Alias] = true
	defer delete(r.open, n.Alias)
	value := r.value(n.Alias, depth+1)
	value.line = n.Line
	return value
}

func (r *yamlReader) list(n *yaml.Node, depth int) node {
	if n.ShortTag() != "!!seq" {
		return wrongTag(n)
	}
	out := node{kind: kindList, line: n.Line, entries: make([]node, len(n.Content))}
	for i, entry := range n.Content {
		out.entries[i] = r.value(entry, depth+1)
	}
	return out
}

func (r *yamlReader) mapping(n *yaml.Node, depth int) node {
	if n.ShortTag() != "!!map" {
		return wrongTag(n)
	}
	out := node{kind: kindMapping, line: n.Line}
	var merged []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		value := n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			more, problem := r.merged(value, depth)
			if problem != nil {
				return *problem
			}
			merged = append(merged, more...)
			continue
		}
		out.fields = append(out.fields, r.field(key, value, depth))
	}
	out.fields = markDuplicates(out.fields)
	out.fields = withMerged(out.fields, merged)
	return out
}

func (r *yamlReader) field(key, value *yaml.Node, depth int) field {
	name := r.value(key, depth+1)
	if name.kind != kindText {
		text := key.Value
		if text == "" {
			text = "here"
		}
		return field{text, key.Line,
			invalidNode(key.Line, "is a key that is not a text: put it in quotes")}
	}
	return field{name.text, key.Line, r.value(value, depth+1)}
}

// merged returns the fields of "<<: *alias" or "<<: [*alias, …]", or what is wrong with it.
func (r *yamlReader) merged(n *yaml.Node, depth int) ([]field, *node) {
	from := []node{r.value(n, depth+1)}
	if from[0].kind == kindList {
		from = from[0].entries
	}
	var fields []field
	for _, one := range from {
		if one.kind == kindWrong {
			return nil, &one
		}
		if one.kind != kindMapping {
			problem := invalidNode(n.Line, "merges %s; << takes a mapping or a list of them", one)
			return nil, &problem
		}
		fields = append(fields, one.fields...)
	}
	return fields, nil
}

// withMerged adds the merged fields with new names.
func withMerged(fields, merged []field) []field {
	if len(merged) == 0 {
		return fields
	}
	names := make(map[string]bool, len(fields)+len(merged))
	for _, f := range fields {
		names[f.name] = true
	}
	for _, f := range merged {
		if !names[f.name] {
			names[f.name] = true
			fields = append(fields, f)
		}
	}
	return fields
}

// jsonNumber matches a number as JSON writes it. YAML takes 1e400 for a text.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// leadingZero matches what YAML takes for a number and people mean as a code, such as 00501.
var leadingZero = regexp.MustCompile(`^0[0-9]+$`)

// scalar reads one value. Numbers keep their digits; YAML's numbers that JSON can't express are
// refused, as nobody can know whether a number or a text is meant.
func scalar(n *yaml.Node) node {
	text := n.Value
	if n.Style == 0 && jsonNumber.MatchString(text) {
		return node{kind: kindNumber, line: n.Line, text: text}
	}
	switch n.ShortTag() {
	case "!!str":
		return textNode(n.Line, text)
	case "!!timestamp":
		out := textNode(n.Line, text)
		out.date = true
		return out
	case "!!null":
		return node{kind: kindNull, line: n.Line}
	case "!!bool":
		if lower := strings.ToLower(text); lower == "true" || lower == "false" {
			return node{kind: kindBoolean, line: n.Line, text: lower}
		}
	case "!!int", "!!float":
		if leadingZero.MatchString(text) && n.Style&yaml.TaggedStyle == 0 {
			return textNode(n.Line, text)
		}
		if jsonNumber.MatchString(text) {
			return node{kind: kindNumber, line: n.Line, text: text}
		}
		return invalidNode(n.Line, "is %s, a number that JSON doesn't have: put it in quotes if "+
			"it is a text, or write it in decimals", text)
	}
	return wrongTag(n)
}

func wrongTag(n *yaml.Node) node {
	return invalidNode(n.Line, "has the tag %s, which is not read here", n.ShortTag())
}
