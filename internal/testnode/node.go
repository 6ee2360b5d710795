// Package testnode runs a whole node inside a test process, for the examples of packages that
// talk to one: API, dispatcher and governance on a separate database. Tests of the node itself
// start real processes instead.
package testnode

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const tenant = "acme"

// Node is a running node with a tenant.
type Node struct {
	URL      string // of its API
	Database string // the URL of its database
	Token    string // of the tenant, with all scopes but admin

	issuer *auth.Issuer
}

// Shared returns the node of this process, started at the first call. It may deliver to this
// machine, and challenges endpoints. It ends with the process, and so does its database, since
// an example can't end them. It panics if it can't be started.
var Shared = sync.OnceValue(func() *Node {
	contracttest.Watch()
	n := &Node{}
	if err := n.start(); err != nil {
		panic(err)
	}
	return n
})

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant)
	return err
}

func (n *Node) start() error {
	url, _, err := pgtest.Open(prepare)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.Database = url
	n.URL = "http://" + l.Addr().String()
	verifier, err := n.authenticate()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	cfg := node.Config{
		Roles: node.AllRoles(), Listener: l, Tokens: verifier, Log: log,
		Secret: []byte(strings.Repeat("k", callbacks.MinSecretBytes)),
		Store: store.Config{URL: url, Node: "testnode", Roles: "api,dispatcher,governance",
			Build: "test", Notify: true, Log: log},
		Callbacks: callbacks.Config{PublicURL: n.URL, Version: "test", Egress: asyncflow.Anywhere},
		API: httpapi.Config{Version: "test", Egress: asyncflow.Anywhere,
			VerifyEndpoints: true},
		Console: &console.Config{TraceURL: "https://tempo.example.com/trace/{trace_id}"},
	}
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- node.Run(context.Background(), cfg, func() { close(ready) }) }()
	select {
	case err := <-ended:
		return err
	case <-ready:
		go func() { panic(<-ended) }()
		return nil
	}
}

// authenticate creates the tenant's token, and its verifier.
func (n *Node) authenticate() (*auth.Verifier, error) {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(strings.Repeat("s", 32))
	var err error
	if n.issuer, err = auth.NewIssuer(cfg); err != nil {
		return nil, err
	}
	n.Token, err = n.NewToken(time.Hour, auth.ScopeSubmit, auth.ScopeRead, auth.ScopeWork,
		auth.ScopeOperate, auth.ScopeManage)
	if err != nil {
		return nil, err
	}
	return auth.NewVerifier(cfg)
}

// NewToken returns a token of the tenant that lives for some time.
func (n *Node) NewToken(life time.Duration, scopes ...auth.Scope) (string, error) {
	return n.TokenOf(tenant, life, scopes...)
}

// TokenOf returns a token of any tenant.
func (n *Node) TokenOf(tenant string, life time.Duration, scopes ...auth.Scope) (string, error) {
	return n.issuer.IssueLimited(tenant, "test", scopes,
		auth.ClaimLimits{Claimers: auth.Claimers{"*"}}, life, time.Now())
}

// OperatorToken returns a token of an operator.
func (n *Node) OperatorToken() (string, error) {
	return n.issuer.IssueAdmin("test", time.Hour, time.Now())
}
