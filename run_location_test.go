package asyncflow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestWorkerName(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("w", asyncflow.MaxWorkerName)
	for name, want := range map[string]string{
		"":              "",
		"worker-7f9c":   "worker-7f9c",
		"!~":            "!~",
		longest:         longest,
		longest + "w":   "",
		"two words":     "",
		"tab\t":         "",
		"\x1e":          "",
		"\x1f":          "",
		"\x7f":          "",
		"größe":         "",
		"\xff":          "",
		"line\nbreak":   "",
		"nul\x00inside": "",
	} {
		require.Equal(t, want, asyncflow.WorkerName(name), "%q", name)
	}
}

func TestNodeID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "m8x2k1qf", asyncflow.NodeID("host-1/77/m8x2k1qf"))
	require.Equal(t, "node-1", asyncflow.NodeID("node-1"))
	require.Empty(t, asyncflow.NodeID(""))
}

// What stands in the journal in place of an endpoint is read as it was written, whatever a subject
// is.
func TestRunLocation(t *testing.T) {
	t.Parallel()
	endpoints := []string{"", "https://worker.example.com/a b", "claimer:anna",
		"claimer:anna sub", "claimer:anna sub with  spaces ", "claimer:anna \x1esub\x1fother",
		"listen://anna sub"}
	for _, endpoint := range endpoints {
		for _, node := range []string{"", "m8x2k1qf"} {
			for _, worker := range []string{"", "w-1", "@#/?"} {
				if node == "" && worker == "" && strings.Contains(endpoint, "\x1e") {
					continue // no node writes a location without both
				}
				text := asyncflow.RunLocation(endpoint, node, worker)
				gotEndpoint, gotNode, gotWorker := asyncflow.ParseRunLocation(text)
				require.Equal(t, []string{endpoint, node, worker},
					[]string{gotEndpoint, gotNode, gotWorker}, "%q", text)
				require.Equal(t, worker != "" && node+worker != "",
					strings.HasSuffix(text, asyncflow.RunLocationEnd(worker)) && worker != "")
				claimer, _ := asyncflow.ClaimerOf(endpoint)
				read, _ := asyncflow.ClaimerOf(text)
				require.Equal(t, claimer, read, "as a node of the version before reads %q", text)
			}
		}
	}
}

func TestLocationOfASettlement(t *testing.T) {
	t.Parallel()
	location := func(kind asyncflow.OutcomeKind, l asyncflow.Lease, worker string) string {
		s := asyncflow.Settlement{Lease: l, Outcome: asyncflow.Outcome{Kind: kind, Endpoint: "u",
			Worker: worker}}
		return s.Location("host/1/here")
	}
	other := asyncflow.Lease{Node: "host/2/there", Worker: "earlier"}
	require.Equal(t, "u\x1ehere", location(asyncflow.OutcomeDone, asyncflow.Lease{}, ""))
	require.Equal(t, "u\x1ehere\x1fw", location(asyncflow.OutcomeFailed, asyncflow.Lease{}, "w"))
	require.Equal(t, "u\x1ethere\x1fearlier", location(asyncflow.OutcomeLost, other, ""))
	require.Equal(t, "u\x1ethere\x1fw", location(asyncflow.OutcomeSnoozed, other, "w"))
	require.Equal(t, "u\x1ethere\x1fearlier", location(asyncflow.OutcomeCancelled, other, ""))
	require.Equal(t, "u", location(asyncflow.OutcomeCancelled, asyncflow.Lease{}, ""),
		"it had not begun")
	require.Equal(t, "u", location(asyncflow.OutcomeReleased, other, ""), "it was not sent")
	require.Equal(t, "u", location(asyncflow.OutcomeChanged, asyncflow.Lease{}, ""))
}
