package callbacks

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A 202 with an output that is too long is a failed attempt, as one with a short output is: pushed,
// as a batch, or passed on by asyncflow listen.
func TestAcceptedWithALongOutput(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n\r\n"
	const want = `the answer has the status 202, so the report comes later, but its body has `
	for field, n := range map[string]int{"output": 1, "results": 20} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			long := `{"id":7,"` + field + `":["` + strings.Repeat("x", r.maxAnswer(n))
			all := deliveriesTo(newRawWorker(t, func(c net.Conn) { write(head + long)(c) }).url, n)
			if n == 1 {
				all[0].Endpoint.Batch = asyncflow.Batch{}
			}
			for _, o := range r.Sender.Send(t.Context(), all) {
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Contains(t, o.Error, want+`"`+field+`"`)
			}
		})
	}
	o := setup(t).ReadClaim(Answer{Status: 202, ContentType: "application/json",
		Body: []byte(`{"output":"` + strings.Repeat("x", 1<<20) + `"}`)})
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Contains(t, o.Error, want+`"output"`)
}
