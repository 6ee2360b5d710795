package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// modes are what can be measured beside the figures of a round, by the first argument.
var modes = map[string]func(context.Context, []string) error{
	"compare":   runCompare,
	"held":      runHeld,
	"history":   runHistory,
	"idle":      runIdle,
	"noisy":     runNoisy,
	"profile":   runProfile,
	"promote":   runPromote,
	"rolls":     runRolls,
	"snapshot":  runSnapshot,
	"sustained": runSustained,
}

// run is main, or one of the processes that it starts from its own program.
func run(args []string) error {
	mode := runRounds
	if len(args) > 0 {
		switch args[0] {
		case workerMode:
			return runWorker(os.Stdin, os.Stdout)
		case bareMode:
			return runBare(context.Background(), args[1:])
		case reaperMode:
			return runReaper(os.Stdin, args[1:])
		}
		if named, ok := modes[args[0]]; ok {
			mode, args = named, args[1:]
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return mode(ctx, args)
}

// options are what every mode has.
type options struct {
	short  bool
	binary string // the asyncflow to measure; empty: build it
	given  bool   // binary was: it may be of another revision
	json   string // file for the figures; empty: none
	plots  string // directory for the plots; empty: none
}

// parse reads the arguments of a mode. own adds its flags to those that all have.
func (o *options) parse(args []string, short string, own func(*flag.FlagSet)) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.short, "short", false, short)
	f.StringVar(&o.binary, "binary", "", "the asyncflow program to measure; default: build ./cmd/asyncflow")
	f.StringVar(&o.json, "json", "", "write the figures to this file too")
	f.StringVar(&o.plots, "plots", "", "write plots to this directory")
	own(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	o.given = o.binary != ""
	if f.NArg() > 0 {
		return fmt.Errorf("there is nothing called %s: flags only", f.Arg(0))
	}
	return nil
}
