package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// sharedNode returns a node that several tests use at the same time, and a tenant of the test's own
// there: that costs less than a node with a database. The node has no flags, and a test neither
// stops it nor looks into its database, which is one amongStrangers.
func sharedNode(t *testing.T) *process {
	t.Helper()
	shared, err := launchShared()
	require.NoError(t, err)
	p := &process{shared.program, t, fmt.Sprint("acme", sharedTenants.Add(1))}
	t.Cleanup(func() {
		assertNothingCalled(t, shared.database)
		p.tellEnd()
	})
	_, err = adminClient(t, p.url).CreateTenant(t.Context(), p.tenant, client.Quotas{})
	require.NoError(t, err)
	return p
}

var sharedTenants atomic.Int64

type sharedProgram struct {
	*program
	database string // its URL
}

// launchShared starts the shared node at the first call.
var launchShared = sync.OnceValues(func() (*sharedProgram, error) {
	url, _, err := pgtest.Open(prepareAmongStrangers)
	if err != nil {
		return nil, err
	}
	p, ready, err := launch(nodeEnv(url), os.Args[0], "serve")
	if err != nil {
		return nil, err
	}
	endSharedNode = p.kill
	select {
	case p.url = <-ready:
		return &sharedProgram{p, url}, nil
	case <-p.exited:
	case <-time.After(patience):
	}
	return nil, fmt.Errorf("the shared node is not ready: %s", p.said())
})

// endSharedNode ends the shared node, if there is one.
var endSharedNode = func() {}
