package document_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

// A document may say all that the API takes of an endpoint.
func TestDocumentEndpointSettings(t *testing.T) {
	t.Parallel()
	doc, err := document.Parse([]byte(`endpoints:
  - {type: pipe, stage: only, url: "https://w.example.com/", weight: 0, max_in_flight: 3, `+
		`rate: 5/m, batch: {max_tasks: 50, max_wait: 20ms}, secret_kind: ed25519, headers: {X-Key: `+
		`"${KEY}"},
     auth: {kind: oauth2, token_url: "https://l.example.com/", client_id: me, client_secret: `+
		`"${KEY}", scopes: [a]}, tls: {ca: "${KEY}"}}
  - {type: pipe, stage: only, url: "https://v.example.com/"}
`), func(name string) (string, bool) { return "swordfish", name == "KEY" })
	require.NoError(t, err)
	zero := 0
	assert.Equal(t, client.NewEndpoint{Type: "pipe", Stage: "only", URL: "https://w.example.com/",
		Weight: &zero, SecretKind: "ed25519",
		MaxInFlight: 3, Rate: asyncflow.Rate{Count: 5, Per: time.Minute},
		Batch: asyncflow.Batch{MaxTasks: 50,
			MaxWait: asyncflow.NewDuration(20 * time.Millisecond)},
		Headers: map[string]string{"X-Key": "swordfish"}, TLS: client.EndpointTLS{CA: "swordfish"},
		Auth: client.EndpointAuth{Kind: "oauth2", TokenURL: "https://l.example.com/",
			ClientID:     "me",
			ClientSecret: "swordfish", Scopes: []string{"a"}}}, doc.Endpoints[0])
	assert.Nil(t, doc.Endpoints[1].Weight)
}
