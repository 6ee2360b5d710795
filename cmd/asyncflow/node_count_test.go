package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// A tenant counts the nodes that serve it.
func TestCLINodes(t *testing.T) {
	t.Parallel()
	url := database(t)
	node := startNode(t, url, "--roles=api,dispatcher")
	startNode(t, url, "--roles=api,governance")
	run := clientOf(t, node)
	var n client.NodeCounts
	require.Eventually(t, func() bool { // nodes register themselves some time after their start
		require.NoError(t, json.Unmarshal([]byte(run(0, "nodes", "-o", "json")), &n))
		return n.Alive == 2
	}, patience, 20*time.Millisecond)
	assert.Equal(t, []int{0, 2, 1, 1},
		[]int{n.Gone, n.Roles.API, n.Roles.Dispatcher, n.Roles.Governance})
	assert.Equal(t, []string{version}, n.Versions)
}

func TestNodesTable(t *testing.T) {
	t.Parallel()
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v1/nodes", r.RequestURI)
		doc := client.NodeCounts{Alive: 3, Gone: 1, Versions: []string{"0.1.0", "0.2.0"}}
		doc.Roles.API, doc.Roles.Dispatcher = 2, 3
		answer(w, 200, doc)
	})
	require.Equal(t, ran{0, `alive       3
gone        1
api         2
dispatcher  3
governance  0
versions    0.1.0, 0.2.0
`, ""}, runCLI(t, env, "nodes"))
}
