package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow/client"
)

// decode fills what into points to, and returns the decoder with the problems that it found. The
// error is an *Error of a document that can't be read at all.
func decode(raw []byte, wanted string, env Lookup, into any) (*decoder, error) {
	tree, err := read(raw)
	if err == nil && tree.kind == kindNull {
		err = errors.New("it is empty: it should have " + wanted)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	d := &decoder{env: env, lines: lines{"": tree.line}}
	d.value("", tree, reflect.ValueOf(into).Elem())
	return d, nil
}

// read reads a document that is JSON as JSON, since YAML gives other meanings to some of it, and
// lacks some of its escapes. Any other one is YAML.
func read(raw []byte) (node, error) {
	if len(raw) > maxBytes {
		return node{}, fmt.Errorf("it has %d bytes; the limit is %d", len(raw), maxBytes)
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	start := bytes.TrimLeft(raw, " \t\r\n")
	mayBeJSON := len(start) > 0 && (start[0] == '{' || start[0] == '[')
	isJSON := mayBeJSON && json.Valid(raw)
	if err := checkValues(raw, isJSON); err != nil {
		return node{}, err
	}
	switch {
	case isJSON:
		return parseJSON(raw)
	case !mayBeJSON:
		return parseYAML(raw)
	}
	tree, err := parseYAML(raw)
	if err != nil {
		err = fmt.Errorf("%w; nor is it JSON: %w", err, jsonFault(raw))
	}
	return tree, err
}

// jsonFault says where a document isn't JSON.
func jsonFault(raw []byte) error {
	err := json.Unmarshal(raw, new(json.RawMessage))
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(raw[:min(int(syntax.Offset), len(raw))], []byte{'\n'})
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

var yamlLine = regexp.MustCompile(`^line ([0-9]+): `)

// unreadable returns the error of a document that can't be read, with its line if that is known.
func unreadable(err error) error {
	reason := strings.Join(strings.Fields(err.Error()), " ")
	at := lines{}
	if rest, ok := strings.CutPrefix(reason, "yaml: "); ok {
		if m := yamlLine.FindStringSubmatch(rest); m != nil {
			at[""], _ = strconv.Atoi(m[1])
			rest = rest[len(m[0]):]
		}
		reason = "it is not YAML: " + rest
	}
	return newError(problems{client.FieldError{Message: reason}}, at)
}

// reference is ${NAME}, or a "${" that is meant to be one.
var reference = regexp.MustCompile(`\$?\$\{([^}]*)(\})?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${NAME} in a text by the value of env; $${NAME} becomes ${NAME}.
// Inserted values are not expanded again. An unset variable is an error that names it; an empty
// one is not.
func expand(text string, env Lookup) (string, error) {
	var problems []string
	out := reference.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasPrefix(match, "$$") {
			return match[1:]
		}
		name := strings.TrimSuffix(match[2:], "}")
		switch value, ok := env(name); {
		case !strings.HasSuffix(match, "}") || !variableName.MatchString(name):
			problems = append(problems,
				fmt.Sprintf("has %q, which is not a reference like ${NAME}; $${ stands for a "+
					"plain ${", match))
		case !ok:
			problems = append(problems,
				fmt.Sprintf("names the environment variable %s, which is not set", name))
		default:
			return value
		}
		return match
	})
	if len(problems) > 0 {
		return "", fmt.Errorf("%s", strings.Join(problems, ", and "))
	}
	return out, nil
}
