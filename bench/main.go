package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/asyncflow/asyncflow/bench/internal/bare"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// modes are the questions that are measured by themselves, by the first argument.
var modes = map[string]func(context.Context, []string) error{
	"citus":     runCitus,
	"compare":   runCompare,
	"fair":      onRig(parseFair, runFair),
	"held":      onRig(parseFlowKeys, runFlowKeys),
	"history":   onRig(parseHistory, runHistory),
	"idle":      runIdle,
	"noisy":     onRig(parseNoisy, runNoisy),
	"poolers":   runPoolers,
	"traces":    runTraces,
	"pools":     runPools,
	"profile":   runProfile,
	"promote":   onRig(parsePromote, runPromote),
	"rolls":     runRolls,
	"sizing":    onRig(parseSizing, runSizing),
	"snapshot":  runSnapshot,
	"sustained": onRig(parseSustained, runSustained),
	"upgrade":   onRig(parseUpgrade, runUpgrade),
}

// run is main, or one of the processes that the bench starts from its own program.
func run(args []string) error {
	mode := runRounds
	if len(args) > 0 {
		switch args[0] {
		case worker.Mode:
			return worker.Run(os.Stdin, os.Stdout)
		case bare.Mode:
			return bare.Run(context.Background(), args[1:])
		case rig.ReaperMode:
			return rig.RunReaper(os.Stdin, args[1:])
		}
		if named, ok := modes[args[0]]; ok {
			mode, args = named, args[1:]
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return mode(ctx, args)
}
