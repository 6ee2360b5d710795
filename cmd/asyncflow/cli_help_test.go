package main

import (
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// There is a help text for every command, flag and argument, and every long text is used.
func TestEverythingHasHelp(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	require.NoError(t, err)
	addHelp(parser.Model.Node)
	known := map[string]bool{}
	require.NoError(t, kong.Visit(parser.Model, func(n kong.Visitable, next kong.Next) error {
		switch n := n.(type) {
		case *kong.Flag:
			require.NotEmpty(t, n.Help, n.Name)
			known[n.Help] = true
		case *kong.Positional:
			require.NotEmpty(t, n.Help, n.Name)
			known[n.Help] = true
		case *kong.Command:
			require.NotEmpty(t, n.Help, n.Path())
		}
		return next(nil)
	}))
	for command, texts := range longTexts {
		for name, text := range texts {
			require.Contains(t, known, text, "%s %s", command, name)
		}
	}
}
