package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

// Without a credential every call is refused, however its path is spelled.
func TestEveryRouteIsGuarded(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	doc := contracttest.Document()
	fill := strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "other", "{id}",
		"pipe.1.1")
	calls := 0
	var open []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Security != nil && len(*op.Security) == 0 {
				open = append(open, op.OperationID)
				continue
			}
			p := fill.Replace(path)
			for _, spelled := range []string{p, p + "/", strings.ToUpper(p),
				strings.Replace(p, "/v1/", "/V1/", 1), "/" + p,
				strings.Replace(p, "/v1/", "/v1/./", 1)} {
				for _, m := range []string{method, http.MethodHead, http.MethodOptions} {
					a := b.callAs("", m, spelled, "")
					assert.Contains(t, []int{401, 404, 405}, a.status, "%s %s: %s", m, spelled,
						a.body)
					calls++
				}
			}
			assert.Equal(t, 401, b.callAs("", method, p, "").status, "%s %s", method, p)
		}
	}
	assert.Greater(t, calls, 200)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(openCalls)), open)
}

// openCalls are the calls that need no token, each with the test of what strangers can take by it.
var openCalls = map[string]func(*testing.T){
	"showLink":    TestLinksAreLimited,
	"decideLink":  TestLinksAreLimited,
	"health":      TestAnswersToStrangersAreBounded, // it is a constant
	"ready":       TestReadyTakesOneConnection,
	"openapi":     TestDocumentsAreMadeOnce,
	"openapiJSON": TestDocumentsAreMadeOnce,
	"docs":        TestDocumentsAreMadeOnce,
	"docsFile":    TestDocumentsAreMadeOnce,
	"metrics":     TestAnswersToStrangersAreBounded,
}

// A worker's credential is checked before its body.
func TestCompletionTokenComesFirst(t *testing.T) {
	b := setup(t)
	b.pipe()
	for _, call := range []string{"complete", "fail", "heartbeat", "progress"} {
		assert.Equal(t, 401, b.callAs("nothing", "POST", "/v1/callbacks/pipe.1.1/"+call,
			`{"wrong":1}`).status, call)
	}
}

func TestAuth(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	id := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID
	expired, err := b.issuer.Issue("acme", "test", []auth.Scope{auth.ScopeRead}, time.Minute,
		time.Now().Add(-time.Hour))
	require.NoError(t, err)
	other := authConfig()
	other.HMACSecret = []byte(strings.Repeat("x", 32))
	forger, err := auth.NewIssuer(other)
	require.NoError(t, err)
	forged, err := forger.Issue("acme", "test", []auth.Scope{auth.ScopeRead}, time.Hour, time.Now())
	require.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	none := encode([]byte(`{"alg":"none","typ":"at+jwt"}`)) + "." + encode(fmt.Appendf(nil,
		`{"iss":"asyncflow","aud":"asyncflow","sub":"x","tenant":"acme","scope":"read","exp":%d}`,
		time.Now().Add(time.Hour).Unix())) + "."
	completion := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme",
		Task: asyncflow.NewTaskID("pipe", 1, 1), Seq: 1, Expiry: time.Now().Add(time.Hour)})
	for name, c := range map[string]struct {
		token  string
		status int
	}{
		"missing":                 {"", 401},
		"expired":                 {expired, 401},
		"signed by another":       {forged, 401},
		"alg none":                {none, 401},
		"garbage":                 {"abc", 401},
		"a completion token":      {completion, 401},
		"without the scope":       {b.newToken("acme", auth.ScopeSubmit), 403},
		"of an unknown tenant":    {b.newToken("nobody", auth.ScopeRead), 403},
		"of another tenant":       {b.newToken("other", auth.ScopeRead), 404},
		"good":                    {b.newToken("acme", auth.ScopeRead), 200},
		"good, from the cache":    {b.token, 200},
		"good, from the cache(2)": {b.token, 200},
	} {
		a := b.callAs(c.token, "GET", "/v1/tasks/"+id, "")
		assert.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		if c.status == 401 {
			assert.NotEmpty(t, a.header.Get("WWW-Authenticate"), name)
		}
	}
	// A JWT is no completion token.
	a := b.callAs(b.token, "POST", "/v1/callbacks/"+id+"/complete", "")
	assert.Equal(t, 401, a.status, "%s", a.body)
	// Open calls need no credential.
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		assert.Equal(t, 200, b.callAs("", "GET", path, "").status, path)
	}
}
