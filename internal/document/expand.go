package document

import (
	"fmt"
	"regexp"
	"strings"
)

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
				fmt.Sprintf("has %q, which is not a reference like ${NAME}; $${ stands for a plain ${", match))
		case !ok:
			problems = append(problems, fmt.Sprintf("names the environment variable %s, which is not set",
				name))
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
