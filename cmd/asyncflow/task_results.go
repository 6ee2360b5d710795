package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksResultsCmd struct {
	ID    string `arg:"" name:"id" help:"The id of a task that made children."`
	From  int    `placeholder:"INDEX" help:"Begin with the child of this index."`
	Limit int    `default:"50" help:"The most results to list; 0 lists all."`
}

func (c *tasksResultsCmd) Help() string {
	return `Shows how the children of the latest fan-out ended, in the order of the items or shards.

Examples:

    asyncflow tasks results scans.1.17
    asyncflow tasks results scans.1.17 --limit 0 -o json | jq '.results[].output'`
}

// Run lists results, over as many pages as needed.
func (c *tasksResultsCmd) Run(ctx context.Context, g *globals) error {
	if c.Limit < 0 || c.From < 0 {
		return usageError(asyncflow.InvalidField("--limit and --from", "must be 0 or more"))
	}
	all, err := c.collect(ctx, g.client())
	if done, err := g.asDocument(all, err); done {
		return err
	}
	rows := make([][]string, len(all.Results))
	for i, r := range all.Results {
		rows[i] = []string{strconv.Itoa(r.Index), string(r.Status), r.ID,
			cmp.Or(r.Error, string(r.Output))}
	}
	if err := g.printTable("INDEX STATUS ID RESULT", rows); err != nil || all.Next == 0 {
		return err
	}
	_, err = fmt.Fprintf(g.stderr, "there are more, of %d: --from %d\n", all.Count, all.Next)
	return err
}

// collect returns the results together; Next is the index of the first one after them.
func (c *tasksResultsCmd) collect(
	ctx context.Context, api *client.Client,
) (client.ChildResults, error) {
	all := client.ChildResults{Next: c.From, Results: []client.ChildResult{}}
	for {
		page, err := api.Results(ctx, c.ID, all.Next)
		if err != nil {
			return all, err
		}
		all.Count, all.Next = page.Count, page.Next
		all.Results = append(all.Results, page.Results...)
		if c.Limit > 0 && len(all.Results) > c.Limit {
			all.Next = all.Results[c.Limit].Index
			all.Results = all.Results[:c.Limit]
		}
		if all.Next == 0 || len(all.Results) == c.Limit {
			return all, nil
		}
	}
}

type tasksCheckpointCmd struct {
	ID string `arg:"" name:"id" help:"The task's id."`
}

func (c *tasksCheckpointCmd) Help() string {
	return `Shows the checkpoint that the next attempt of the task's stage would get. The exit code is
4 if there is none.

Example:

    asyncflow tasks checkpoint import.1.42`
}

// Run shows the checkpoint.
func (c *tasksCheckpointCmd) Run(ctx context.Context, g *globals) error {
	one, err := g.client().Checkpoint(ctx, c.ID)
	if done, err := g.asDocument(one, err); done {
		return err
	}
	_, err = fmt.Fprintf(g.stdout, "in stage %s, %s:\n", printable(one.Stage),
		timeText(one.WrittenAt))
	if err != nil {
		return err
	}
	return g.printJSON(one.Document)
}

type tasksVotesCmd struct {
	ID string `arg:"" name:"id" help:"The id of a task that came to a stage with a quorum."`
}

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
