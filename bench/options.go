package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// options are what every mode takes.
type options struct {
	short  bool
	binary string // the asyncflow to measure; empty: build it
	json   string // file for the figures; empty: none
	plots  string // directory for the plots; empty: none
}

// parse reads the arguments of a mode. own adds the mode's flags to the common ones.
func (o *options) parse(args []string, short string, own func(*flag.FlagSet)) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.short, "short", false, short)
	f.StringVar(&o.binary, "binary", "",
		"the asyncflow program to measure; default: build ./cmd/asyncflow")
	f.StringVar(&o.json, "json", "", "write the figures to this file too")
	f.StringVar(&o.plots, "plots", "", "write plots to this directory")
	own(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("there is nothing called %s: flags only", f.Arg(0))
	}
	return nil
}

// rig is the configuration of a rig with these options.
func (o options) rig() rig.Config { return rig.Config{Binary: o.binary} }

// start starts a rig with a node.
func (o options) start(ctx context.Context) (*rig.Rig, error) { return rig.Start(ctx, o.rig()) }

// onRig is a mode that measures on a rig of its own. C embeds options.
func onRig[C interface {
	start(context.Context) (*rig.Rig, error)
}](
	parse func([]string) (C, error), measure func(context.Context, *rig.Rig, C) error,
) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		cfg, err := parse(args)
		if err != nil {
			return err
		}
		r, err := cfg.start(ctx)
		if err != nil {
			return err
		}
		defer r.Stop()
		return measure(ctx, r, cfg)
	}
}

// describe returns the machine, with the Postgres of a rig.
func describe(r *rig.Rig) machine.Machine { return machine.Describe(r.DB.Version()) }

// sizes are numbers of things, such as finished tasks or types.
type sizes []int

func (s *sizes) String() string { return fmt.Sprint([]int(*s)) }

// Set reads numbers with commas in between.
func (s *sizes) Set(text string) error {
	*s = nil
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of anything", field)
		}
		*s = append(*s, n)
	}
	return nil
}
