package main

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

// secrets are what all nodes of a database share.
type secrets struct{ node, tokens string }

func newSecrets() secrets { return secrets{rand.Text() + rand.Text(), rand.Text() + rand.Text()} }

// node is a node that runs.
type node struct {
	*process
	api *client
}

// startNode starts a node, the first or one more, and waits until it takes requests.
func (b *bench) startNode(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	cmd := exec.Command(b.binary, append([]string{"serve", "--migrate", "--listen", address}, b.nodeArgs...)...)
	cmd.Env = b.environment()
	p, err := startProcess("the node", cmd)
	if err != nil {
		return err
	}
	token, err := b.token(tenant)
	n := &node{p, &client{http: newHTTPClient(), base: "http://" + address, token: token}}
	if b.nodes = append(b.nodes, n); len(b.nodes) == 1 {
		b.api = n.api
	}
	if err != nil {
		return err
	}
	return n.awaitReady(ctx)
}

// environment is that of the program that is measured.
func (b *bench) environment() []string {
	return append(os.Environ(), "DATABASE_URL="+b.url(), "ASYNCFLOW_SECRET="+b.secrets.node, "ASYNCFLOW_JWT_SECRET="+b.secrets.tokens,
		"ASYNCFLOW_ALLOW_HTTP=1", "ASYNCFLOW_ALLOW_PRIVATE_NETWORKS=1", "ASYNCFLOW_VERIFY_ENDPOINTS=false", "ASYNCFLOW_LOG_LEVEL=error")
}

// stopNode stops the node that was started last.
func (b *bench) stopNode() {
	last := len(b.nodes) - 1
	b.nodes[last].stop()
	b.nodes = b.nodes[:last]
}

func (b *bench) stopNodes() {
	for len(b.nodes) > 0 {
		b.stopNode()
	}
}

// withNode does something while one more node runs.
func (b *bench) withNode(ctx context.Context, do func(context.Context) error) error {
	started, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	before := len(b.nodes)
	defer func() {
		if len(b.nodes) > before {
			b.stopNode()
		}
	}()
	if err := b.startNode(started); err != nil {
		return err
	}
	return do(ctx)
}

// run runs a command of the program that is measured: what another revision needs in its
// database is its own business.
func (b *bench) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env = b.environment()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("asyncflow %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func (b *bench) makeTenant(ctx context.Context) error { return b.run(ctx, "tenants", "create", tenant) }

// build builds the program to measure, unless there is one.
func (b *bench) build(ctx context.Context) error {
	if b.binary != "" {
		return nil
	}
	b.binary = b.dir.join("asyncflow")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "github.com/asyncflow/asyncflow/cmd/asyncflow")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build ./cmd/asyncflow: %w", err)
	}
	return nil
}

// freeAddress returns an address on the loopback that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// token returns a token for a tenant.
func (b *bench) token(tenant string) (string, error) {
	issuer, err := b.issuer()
	if err != nil {
		return "", err
	}
	return issuer.Issue(tenant, "bench", []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate, auth.ScopeManage}, 24*time.Hour, time.Now())
}

// adminToken returns a token for what lies above the tenants.
func (b *bench) adminToken() (string, error) {
	issuer, err := b.issuer()
	if err != nil {
		return "", err
	}
	return issuer.IssueAdmin("bench", 24*time.Hour, time.Now())
}

func (b *bench) issuer() (*auth.Issuer, error) {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(b.secrets.tokens)
	return auth.NewIssuer(cfg)
}

func (n *node) awaitReady(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-n.done:
			return false, errors.Join(errors.New("the node ended"), n.err)
		default:
		}
		_, err := n.api.call(ctx, http.MethodGet, "/readyz", nil)
		return err == nil, nil
	})
}
