package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// readEnv makes flags with an env tag take their values from env. Kong by
// itself would read the environment of the process, and would take a variable
// that is set to nothing for a value.
func readEnv(parser *kong.Kong, env lookup) {
	names := map[*kong.Value][]string{}
	_ = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok && len(f.Tag.Envs) > 0 {
			names[f.Value] = f.Tag.Envs
			f.Help = helpWithEnv(f.Help, f.Tag.Envs)
			f.Envs, f.Tag.Envs = nil, nil
		}
		return next(nil)
	})
	resolve := kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
		for _, name := range names[f.Value] {
			if value, ok := env(name); ok && value != "" {
				return value, nil
			}
		}
		return nil, nil
	})
	if err := kong.Resolvers(resolve).Apply(parser); err != nil {
		panic(err) // our resolver never refuses
	}
}

func helpWithEnv(help string, names []string) string {
	return strings.TrimSuffix(help, ".") + " ($" + strings.Join(names, ", $") + ")."
}
