package callbacks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

// BenchmarkSend measures deliveries to a worker in the same process, 64 at a time.
func BenchmarkSend(b *testing.B) {
	worker := http.HandlerFunc(reply(200, ""))
	for name, start := range map[string]func(http.Handler) *httptest.Server{
		"http":  httptest.NewServer,
		"https": httptest.NewTLSServer,
	} {
		b.Run(name, func(b *testing.B) {
			server := start(worker)
			defer server.Close()
			cfg := Config{Egress: asyncflow.Anywhere}
			r := &rig{Sender: NewSender(cfg, testKeys(b, nodeSecret))}
			defer r.routes.idle.Close()
			if server.TLS != nil {
				config := server.Client().Transport.(*http.Transport).TLSClientConfig
				r.routes.plain = transport.New(r.routes.dial, config, r.routes.idle)
			}
			d := deliveryTo(server.URL)
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					o := r.Send(b.Context(), d)
					require.Equal(b, asyncflow.OutcomeDone, o.Kind, o.Error)
				}
			})
		})
	}
}
