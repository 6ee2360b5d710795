package callbacks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// BenchmarkSend measures deliveries to a worker in the same process, by 64 at a time.
func BenchmarkSend(b *testing.B) {
	worker := http.HandlerFunc(reply(200, ""))
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		b.Run(name, func(b *testing.B) {
			server := start(worker)
			defer server.Close()
			r := &rig{Sender: NewSender(Config{Egress: asyncflow.Anywhere}, testKeys(b, nodeSecret))}
			transport := r.client.HTTPClient.Transport.(*transport)
			defer transport.idle.closeAll()
			if server.TLS != nil {
				transport.tls = server.Client().Transport.(*http.Transport).TLSClientConfig
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
