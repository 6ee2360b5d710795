package main

import (
	"context"
	"fmt"
	"strings"
)

type tasksVotesCmd struct {
	ID string `arg:"" name:"id" help:"The id of a task that came to a stage with a quorum."`
}

// Help is shown by asyncflow tasks votes --help.
func (c *tasksVotesCmd) Help() string {
	return `Shows who has voted on a task, and for what, and whether that has decided it.

Example:

    asyncflow tasks votes moderation.1.17`
}

// Run shows the votes.
func (c *tasksVotesCmd) Run(ctx context.Context, g *globals) error {
	v, err := g.client().Votes(ctx, c.ID)
	if done, err := g.asDocument(v, err); done {
		return err
	}
	var rows [][]string
	for _, one := range v.Data {
		note := ""
		if one.Late {
			note = "late"
		}
		rows = append(rows, []string{timeText(one.At), claimerText(one.Claimer, one.Subject),
			string(one.Status), string(one.Outcome), one.TaskID, note})
	}
	if err := g.printTable("AT CLAIMER STATUS OUTCOME ID NOTE", rows); err != nil {
		return err
	}
	state := "undecided"
	switch {
	case v.Decided:
		state = "decided: " + strings.TrimSpace(string(v.Outcome))
	case v.Over:
		state = "over without a decision"
	}
	_, err = fmt.Fprintln(g.stdout, state)
	return err
}

// claimerText returns the name of a claimer, and the subject of its token if that differs.
func claimerText(claimer, subject string) string {
	if subject == "" || subject == claimer {
		return claimer
	}
	return claimer + " (token of " + subject + ")"
}
