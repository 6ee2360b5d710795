// Command asyncflow is the server, the operator's tool, and a client for the shell. See
// asyncflow --help.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/asyncflow/asyncflow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends the program at once
	}()
	code := realMain(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// lookup reads one environment variable, as os.LookupEnv does.
type lookup func(name string) (string, bool)

// realMain runs the command in args and returns the exit code. It uses nothing of the process
// but standard input, so tests can run it in parallel.
func realMain(ctx context.Context, args []string, stdout, stderr io.Writer, env lookup) int {
	line, err := newCommandLine()
	if err != nil {
		return report(stderr, err)
	}
	return line.run(ctx, args, stdout, stderr, env)
}

// commandLine is what the program can be asked for. It is built once and runs one command at a
// time.
type commandLine struct {
	flags  cli
	parser *kong.Kong
	helped bool // --help was all that was asked for

	// Of the command that runs:
	env    lookup
	stderr io.Writer
}

func newCommandLine() (*commandLine, error) {
	l := &commandLine{}
	parser, err := kong.New(&l.flags,
		kong.Name("asyncflow"),
		kong.Description(description),
		kong.Exit(func(int) { l.helped = true }), // called after --help only
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
	)
	if err != nil {
		return nil, err
	}
	l.parser = parser
	addHelp(parser.Model.Node)
	l.readEnv()
	return l, nil
}

// run runs the command in args and returns the exit code.
func (l *commandLine) run(
	ctx context.Context, args []string, stdout, stderr io.Writer, env lookup,
) int {
	l.env, l.stderr, l.helped = env, stderr, false
	l.parser.Stdout, l.parser.Stderr = stdout, stderr
	parsed, err := l.parser.Parse(args)
	if l.helped {
		return exitOK
	}
	if err != nil {
		return report(stderr, err)
	}
	if l.flags.Output == outputQuiet && parsed.Command() != "listen" {
		return report(stderr, usageError(errNotQuiet))
	}
	g, err := newGlobals(&l.flags.globalFlags, stdout, stderr, env)
	if err != nil {
		return report(stderr, err)
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return report(stderr, parsed.Run(g))
}

// readDuration reads a flag's or a variable's duration in all units that the API knows.
func readDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := asyncflow.ParseDuration(text)
	target.SetInt(int64(d))
	return err
}

// now is the clock of the commands.
func now() time.Time { return time.Now() }
