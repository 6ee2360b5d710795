package main

import (
	"context"
	"strconv"
	"strings"
)

// scale shows how many slots the workers of a stage need, and what that comes from.
func (c *statsCmd) scale(ctx context.Context, g *globals) error {
	taskType, stage, _ := strings.Cut(c.Autoscale, "/")
	s, err := g.client().Scale(ctx, taskType, stage, c.Target)
	if done, err := g.asDocument(s, err); done {
		return err
	}
	return g.printFields("type", s.Type, "stage", s.Stage, "slots", strconv.Itoa(s.Slots),
		"running", strconv.FormatInt(s.Running, 10), "backlog", strconv.FormatInt(s.Backlog, 10),
		"started/s", strconv.FormatFloat(float64(s.StartedPerSecond), 'f', 1, 32),
		"attempt", latencyText(s.ServiceMs), "target", s.Target.String())
}
