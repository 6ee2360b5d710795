package rig

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/auth"
)

// Node is a node that runs.
type Node struct {
	*Process
	API  *Client
	Took time.Duration // from its start until it took requests
}

// StartNode starts a node, the first or one more, and waits until it takes requests.
func (r *Rig) StartNode(ctx context.Context) error {
	if err := r.Build(ctx); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	args := append([]string{"serve", "--migrate", "--listen", address}, r.NodeArgs...)
	cmd := exec.Command(r.Binary, args...)
	cmd.Env = append(r.environment(), r.NodeEnv...)
	start := time.Now()
	p, err := StartProcess("the node", cmd)
	if err != nil {
		return err
	}
	token, err := r.Token(Tenant)
	api := &Client{Base: "http://" + address, Token: token, HTTP: newHTTPClient()}
	n := &Node{Process: p, API: api}
	if r.Nodes = append(r.Nodes, n); len(r.Nodes) == 1 {
		r.API = n.API
	}
	if err != nil {
		return err
	}
	err = n.awaitReady(ctx)
	n.Took = time.Since(start)
	return err
}

// freeAddress returns an address on the loopback that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (n *Node) awaitReady(ctx context.Context) error {
	return Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-n.done:
			return false, errors.Join(errors.New("the node ended"), n.err)
		default:
		}
		_, err := n.API.Call(ctx, http.MethodGet, "/readyz", nil)
		return err == nil, nil
	})
}

// StopNode stops the node that was started last.
func (r *Rig) StopNode() {
	last := len(r.Nodes) - 1
	r.Nodes[last].stop()
	r.Nodes = r.Nodes[:last]
}

// StopNodes stops all nodes.
func (r *Rig) StopNodes() {
	for len(r.Nodes) > 0 {
		r.StopNode()
	}
}

// WithNode calls do while one more node runs.
func (r *Rig) WithNode(ctx context.Context, do func(context.Context) error) error {
	started, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	before := len(r.Nodes)
	defer func() {
		if len(r.Nodes) > before {
			r.StopNode()
		}
	}()
	if err := r.StartNode(started); err != nil {
		return err
	}
	return do(ctx)
}

// WithNodes calls do while that many more nodes run.
func (r *Rig) WithNodes(ctx context.Context, count int, do func(context.Context) error) error {
	for range count {
		next := do
		do = func(ctx context.Context) error { return r.WithNode(ctx, next) }
	}
	return do(ctx)
}

// run runs a command of the program that is measured: each revision knows best what it needs in
// its database.
func (r *Rig) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, r.Binary, args...)
	cmd.Env = r.environment()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(said.Bytes())
		return fmt.Errorf("asyncflow %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return nil
}

// MakeTenant makes the measured tenant.
func (r *Rig) MakeTenant(ctx context.Context) error {
	return r.run(ctx, "tenants", "create", Tenant)
}

// environment is that of the program that is measured.
func (r *Rig) environment() []string {
	return append(os.Environ(),
		"DATABASE_URL="+r.postgres.URL(r.database),
		"ASYNCFLOW_SECRET="+r.secrets.node,
		"ASYNCFLOW_JWT_SECRET="+r.secrets.tokens,
		"ASYNCFLOW_ALLOW_HTTP=1",
		"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS=1",
		"ASYNCFLOW_VERIFY_ENDPOINTS=false",
		"ASYNCFLOW_LOG_LEVEL=error", "ASYNCFLOW_DRAIN_DELAY=0s")
}

// secrets are shared by all nodes of a database.
type secrets struct{ node, tokens string }

func newSecrets() secrets { return secrets{rand.Text() + rand.Text(), rand.Text() + rand.Text()} }

const tokenLife = 24 * time.Hour

// Token returns a token for a tenant.
func (r *Rig) Token(tenant string) (string, error) {
	issuer, err := r.secrets.issuer()
	if err != nil {
		return "", err
	}
	scopes := []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeWork, auth.ScopeOperate,
		auth.ScopeManage}
	return issuer.Issue(tenant, "bench", scopes, tokenLife, time.Now())
}

// Admin returns a client of a node for what lies above the tenants.
func (r *Rig) Admin(of *Client) (*Client, error) {
	issuer, err := r.secrets.issuer()
	if err != nil {
		return nil, err
	}
	token, err := issuer.IssueAdmin("bench", tokenLife, time.Now())
	return &Client{Base: of.Base, Token: token, HTTP: of.HTTP}, err
}

func (s secrets) issuer() (*auth.Issuer, error) {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(s.tokens)
	return auth.NewIssuer(cfg)
}
