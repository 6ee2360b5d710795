package main

import (
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// readEnv makes flags with an env tag take their values from env. Kong itself would read the
// environment of the process, and would accept an empty variable as a value. Flags with a dev tag
// then take that setting of a running dev server.
func readEnv(parser *kong.Kong, env lookup, stderr io.Writer) {
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
		return devSetting(f.Tag.Get("dev"), env, stderr)
	})
	if err := kong.Resolvers(resolve).Apply(parser); err != nil {
		panic(err) // our resolver never refuses
	}
}

func helpWithEnv(help string, names []string) string {
	return strings.TrimSuffix(help, ".") + " ($" + strings.Join(names, ", $") + ")."
}

// missingSettings names the settings that a command lacks. It names a variable rather than a
// flag: most of these settings are secrets, and every user of the machine can see flags.
func missingSettings(parse *kong.ParseError) string {
	var flags, variables []string
	for _, f := range parse.Context.Flags() {
		switch env := f.Tag.Get("env"); {
		case !f.Required || f.Set:
		case env == "":
			flags = append(flags, f.Summary())
		default:
			variables = append(variables, env)
		}
	}
	var parts []string
	if len(flags) > 0 {
		parts = append(parts, "missing flags: "+strings.Join(flags, ", "))
	}
	if len(variables) > 0 {
		parts = append(parts, "set "+strings.Join(variables, " and ")+" in the environment")
	}
	return strings.Join(parts, "; ")
}
