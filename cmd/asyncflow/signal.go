package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// signalsCmd groups the commands for signals.
type signalsCmd struct {
	Send signalsSendCmd `cmd:"" help:"Send a signal to a task that waits for it, or will."`
}

type signalsSendCmd struct {
	Name string        `arg:"" help:"The signal's name, for which a stage of the type waits."`
	To   string        `arg:"" help:"The id of a task, or TYPE:KEY."`
	Data string        `arg:"" optional:"" help:"JSON, @FILE, or - for standard input."`
	Keep time.Duration `placeholder:"TIME" help:"How long it is kept for a task (24h)."`

	IdempotencyKey *string `placeholder:"KEY" help:"A signal with the same key is sent once."`
}

func (c *signalsSendCmd) Help() string {
	return `The data becomes the output of the stage that waits, and so the context of the next one.
A signal that comes before its task waits is kept. With TYPE:KEY, the task with that idempotency
key gets it, which may be submitted later. The token needs the scope submit.

Examples:

    asyncflow signals send approved orders.1.42 '{"by": "anna"}'
    asyncflow signals send paid orders:invoice-17 @payment.json --keep 168h`
}

// Run sends a signal.
func (c *signalsSendCmd) Run(ctx context.Context, g *globals) error {
	signal, key, err := c.signal()
	if err != nil {
		return usageError(err)
	}
	sent, err := g.client().SendSignal(ctx, signal, key)
	if done, err := g.asDocument(sent, err); done {
		return err
	}
	if sent.Existing {
		fmt.Fprintln(g.stderr,
			"asyncflow: the key stands for this signal already: nothing was sent")
	}
	return g.printFields("name", sent.Name, "type", sent.Type, "task", sent.Task, "kept until",
		timeText(sent.KeptUntil))
}

// signal returns the signal of the command line, and its idempotency key.
func (c *signalsSendCmd) signal() (s client.NewSignal, key string, err error) {
	s.Name = c.Name
	s.Keep = client.NewDuration(c.Keep)
	if taskType, key, keyed := strings.Cut(c.To, ":"); keyed {
		s.Type = taskType
		s.Key = key
	} else {
		s.Task = c.To
	}
	if c.IdempotencyKey != nil {
		if key = *c.IdempotencyKey; key == "" { // such as from an unset variable in a script
			return s, "", asyncflow.InvalidField("--idempotency-key", "must not be empty")
		}
	}
	if s.Data, err = readArgument(c.Data); err != nil || s.Data == nil {
		return s, key, err
	}
	if err = asyncflow.CheckJSON(s.Data); err != nil {
		err = asyncflow.InvalidField("the data", "%v", err)
	}
	return s, key, err
}
