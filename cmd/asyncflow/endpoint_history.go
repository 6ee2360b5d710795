package main

import (
	"context"
	"fmt"
	"strconv"
)

type endpointsHistoryCmd struct{ endpointArg }

func (c *endpointsHistoryCmd) Help() string {
	return `The first table has the minutes that had attempts: how many the endpoint failed, how long
half and 99 % of them took at most, and the failures by code: an HTTP status, or why there was no
answer. The second one has the states of its circuit breaker, the latest first. The last line says
how many tasks are leased for it, if its type or an endpoint of the type has limits or isn't well.

Example:

    asyncflow endpoints history ID -o json | jq '[.minutes[].failures] | add'`
}

// Run shows the last hour of an endpoint.
func (c *endpointsHistoryCmd) Run(ctx context.Context, g *globals) error {
	h, err := g.client().EndpointHistory(ctx, c.ID)
	if done, err := g.asDocument(h, err); done {
		return err
	}
	minutes := make([][]string, len(h.Minutes))
	for i, m := range h.Minutes {
		minutes[i] = []string{timeText(m.At), number(m.Attempts), number(m.Failures),
			latencyText(m.Latency.P50Ms), latencyText(m.Latency.P99Ms), codesLine(m.Codes)}
	}
	if err := g.printTable("MINUTE ATTEMPTS FAILURES P50 P99 CODES", minutes); err != nil {
		return err
	}
	fmt.Fprintln(g.stdout)
	states := make([][]string, len(h.States))
	for i, s := range h.States {
		states[i] = []string{healthWord(s.State), timeText(s.Since), timeText(s.Until), s.Reason}
	}
	if err := g.printTable("STATE SINCE UNTIL REASON", states); err != nil || h.InFlight == nil {
		return err
	}
	fmt.Fprintln(g.stdout)
	return g.printFields("in flight", strconv.Itoa(*h.InFlight))
}
