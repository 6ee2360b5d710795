package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/asyncflow/asyncflow/client"
)

// cli holds all commands of asyncflow.
type cli struct {
	globalFlags

	Dev     devCmd     `cmd:"" group:"Run:" help:"Run a node with its own Postgres and samples."`
	Serve   serveCmd   `cmd:"" group:"Run:" help:"Run a node against your Postgres."`
	Migrate migrateCmd `cmd:"" group:"Run:" help:"Bring a database up to date."`
	Tenants tenantsCmd `cmd:"" group:"Run:" help:"Create, change and delete tenants."`
	Token   tokenCmd   `cmd:"" group:"Run:" help:"Create tokens for callers of the API."`
	Keys    keysCmd    `cmd:"" group:"Run:" help:"Manage signing keys and the nodes' secret."`

	Governance governanceCmd `cmd:"" group:"Run:" help:"Show and run the background jobs."`
	Doctor     doctorCmd     `cmd:"" group:"Run:" help:"Look for what is wrong with an installation."`

	Tasks     tasksCmd     `cmd:"" group:"Use:" help:"Submit, show, change and redrive tasks."`
	Signals   signalsCmd   `cmd:"" group:"Use:" help:"Send signals to tasks that wait for them."`
	Types     typesCmd     `cmd:"" group:"Use:" help:"Set up task types: pipelines of stages."`
	Endpoints endpointsCmd `cmd:"" group:"Use:" help:"Set up endpoints: the URLs of workers."`
	Claim     claimCmd     `cmd:"" group:"Use:" help:"Ask for tasks of a stage, as a worker."`
	Listen    listenCmd    `cmd:"" group:"Use:" help:"Forward deliveries to your machine."`
	Stats     statsCmd     `cmd:"" group:"Use:" help:"Count waiting, running and ended tasks."`
	Failures  failuresCmd  `cmd:"" group:"Use:" help:"Group the tasks that failed by their errors."`
	Workers   workersCmd   `cmd:"" group:"Use:" help:"List the workers: which is slow, fails or is gone."`
	Nodes     nodesCmd     `cmd:"" group:"Use:" help:"Count the nodes that serve all tenants."`

	Schedules  schedulesCmd  `cmd:"" group:"Use:" help:"Set up tasks at recurring times."`
	Alerts     alertsCmd     `cmd:"" group:"Use:" help:"Set up deliveries that report trouble."`
	Audit      auditCmd      `cmd:"" group:"Use:" help:"List who changed what, when, and from where."`
	Operations operationsCmd `cmd:"" group:"Use:" help:"Show and stop work on many tasks at once."`

	Verify verifyCmd `cmd:"" group:"Use:" help:"Test a worker with good and bad deliveries."`

	Healthcheck healthcheckCmd `cmd:"" group:"Other:" help:"Check whether a server can take requests."`
	Version     versionCmd     `cmd:"" group:"Other:" help:"Show the version."`
}

// globalFlags apply to every command.
type globalFlags struct {
	URL    string `env:"ASYNCFLOW_URL" placeholder:"URL"`
	Token  string `env:"ASYNCFLOW_TOKEN" placeholder:"JWT"`
	Output string `short:"o" enum:"table,json,quiet" default:"table"`
}

const description = `A durable dispatcher of HTTP callbacks on Postgres.

Start with: asyncflow dev

Exit codes:

    0  done
    1  the operation failed, or was refused
    2  the command line or a document is wrong
    3  the server can't be reached, or can't do this now
    4  there is no such task, task type, endpoint, schedule or tenant
    5  the token is missing, or doesn't allow this
    6  with --wait or tasks watch: the task failed or was cancelled
    7  with --wait: the task was not final in time`

const defaultURL = "http://127.0.0.1:8080"

// globals is the environment that every command runs in.
type globals struct {
	stdout  io.Writer // for results only
	stderr  io.Writer // for everything else
	output  string    // "table", "json", or "quiet" for listen
	env     lookup
	api     *client.Client
	connect func(...client.Option) (*client.Client, error) // to the same server
	server  string                                         // the address of the API
	tenant  string                                         // of the token, which may be bad
}

// newGlobals checks the global flags. Only if neither --url nor --token is set, it takes both
// from a running dev server: a token must not go to a server that it isn't for.
func newGlobals(f *globalFlags, stdout, stderr io.Writer, env lookup) (*globals, error) {
	url, token := f.URL, f.Token
	if url == "" && token == "" {
		url, token, _ = devDefaults(env)
	}
	if url == "" {
		url = defaultURL
	}
	connect := func(more ...client.Option) (*client.Client, error) {
		return client.New(url, token, append(more, client.WithUserAgent("asyncflow/"+version))...)
	}
	api, err := connect()
	if err != nil {
		return nil, usageError(err)
	}
	return &globals{stdout: stdout, stderr: stderr, output: f.Output, env: env, api: api,
		connect: connect, server: strings.TrimSuffix(url, "/"), tenant: tokenTenant(token)}, nil
}

// tokenTenant returns the tenant that a token names in the claim tenant, "" for none. Only the
// server checks tokens, and knows the claims of other issuers.
func tokenTenant(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims map[string]json.RawMessage // a struct would take other spellings of the name
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	var tenant string
	if json.Unmarshal(claims["tenant"], &tenant) != nil {
		return ""
	}
	return tenant
}

// client returns the client of the server that --url and --token name.
func (g *globals) client() *client.Client { return g.api }

// getenv returns an environment variable, empty if it isn't set.
func (g *globals) getenv(name string) string {
	value, _ := g.env(name)
	return value
}

// readEnv makes flags with an env tag take their values from env. Kong itself would read the
// environment of the process, and would accept an empty variable as a value. Flags with a dev tag
// then take that setting of a running dev server.
func (l *commandLine) readEnv() {
	names := map[*kong.Value][]string{}
	_ = kong.Visit(l.parser.Model, func(node kong.Visitable, next kong.Next) error {
		if f, ok := node.(*kong.Flag); ok && len(f.Tag.Envs) > 0 {
			names[f.Value] = f.Tag.Envs
			f.Help = helpWithEnv(f.Help, f.Tag.Envs)
			f.Envs, f.Tag.Envs = nil, nil
		}
		return next(nil)
	})
	resolve := kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
		for _, name := range names[f.Value] {
			if value, ok := l.env(name); ok && value != "" {
				return value, nil
			}
		}
		return devSetting(f.Tag.Get("dev"), l.env, l.stderr)
	})
	if err := kong.Resolvers(resolve).Apply(l.parser); err != nil {
		panic(err) // our resolver never refuses
	}
}

func helpWithEnv(help string, names []string) string {
	return strings.TrimSuffix(help, ".") + " ($" + strings.Join(names, ", $") + ")."
}

// missingSettings names the settings that a command lacks. It names a variable rather than a
// flag: most of these settings are secrets, and every user of the machine can see flags.
func missingSettings(parse *kong.ParseError) string {
	var flags, variables []string
	for _, f := range parse.Context.Flags() {
		switch env := f.Tag.Get("env"); {
		case !f.Required || f.Set:
		case env == "":
			flags = append(flags, f.Summary())
		default:
			variables = append(variables, env)
		}
	}
	var parts []string
	if len(flags) > 0 {
		parts = append(parts, "missing flags: "+strings.Join(flags, ", "))
	}
	if len(variables) > 0 {
		parts = append(parts, "set "+strings.Join(variables, " and ")+" in the environment")
	}
	return strings.Join(parts, "; ")
}
