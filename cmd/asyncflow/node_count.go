package main

import (
	"context"
	"strconv"
	"strings"
)

type nodesCmd struct{}

// Help is shown by asyncflow nodes --help.
func (c *nodesCmd) Help() string {
	return `A node is gone if it has been silent for 15 s and was not shut down; it is forgotten
after a day. The roles are those of the nodes that are alive, and so are the versions: more than one
during an upgrade. Operators see the nodes by name with asyncflow governance status.

Example:

    asyncflow nodes -o json | jq .roles.dispatcher`
}

// Run shows how many nodes there are.
func (c *nodesCmd) Run(ctx context.Context, g *globals) error {
	n, err := g.client().NodeCounts(ctx)
	if done, err := g.asDocument(n, err); done {
		return err
	}
	return g.printFields("alive", strconv.Itoa(n.Alive), "gone", strconv.Itoa(n.Gone),
		"api", strconv.Itoa(n.Roles.API), "dispatcher", strconv.Itoa(n.Roles.Dispatcher),
		"governance", strconv.Itoa(n.Roles.Governance), "versions", strings.Join(n.Versions, ", "))
}
