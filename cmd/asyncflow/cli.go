package main

// cli holds all commands of asyncflow.
type cli struct {
	globalFlags

	Dev     devCmd     `cmd:"" group:"Run:" help:"Try asyncflow out: run a node with its own Postgres, a token and sample tasks."`
	Serve   serveCmd   `cmd:"" group:"Run:" help:"Run a node against your Postgres."`
	Migrate migrateCmd `cmd:"" group:"Run:" help:"Bring a database up to date."`
	Tenants tenantsCmd `cmd:"" group:"Run:" help:"Create, suspend and delete tenants and set their quotas, directly in the database."`
	Token   tokenCmd   `cmd:"" group:"Run:" help:"Create tokens for callers of the API."`
	Keys    keysCmd    `cmd:"" group:"Run:" help:"Create and rotate the keys that sign tokens, and replace the secret that all nodes share."`

	Governance governanceCmd `cmd:"" group:"Run:" help:"Show and run the background jobs, directly in the database."`

	Tasks     tasksCmd     `cmd:"" group:"Use:" help:"Submit tasks, and show, change, cancel and redrive them."`
	Types     typesCmd     `cmd:"" group:"Use:" help:"Set up task types: pipelines of stages."`
	Endpoints endpointsCmd `cmd:"" group:"Use:" help:"Set up endpoints: the URLs of workers."`
	Stats     statsCmd     `cmd:"" group:"Use:" help:"Count the tasks that are waiting, running and done."`

	Schedules  schedulesCmd  `cmd:"" group:"Use:" help:"Set up schedules, which submit tasks at recurring times."`
	Alerts     alertsCmd     `cmd:"" group:"Use:" help:"Set up alerts: deliveries that report trouble."`
	Audit      auditCmd      `cmd:"" group:"Use:" help:"List who changed what, when, and from where."`
	Operations operationsCmd `cmd:"" group:"Use:" help:"Show and stop operations, which cancel or redrive many tasks."`

	Verify verifyCmd `cmd:"" group:"Use:" help:"Test a worker: send it good and bad deliveries, and report what it gets wrong."`

	Healthcheck healthcheckCmd `cmd:"" group:"Other:" help:"Check whether a server can take requests."`
	Version     versionCmd     `cmd:"" group:"Other:" help:"Show the version."`
}

// globalFlags apply to every command.
type globalFlags struct {
	URL    string `name:"url" env:"ASYNCFLOW_URL" placeholder:"URL" help:"URL of the server. Default: that of a running asyncflow dev, else http://127.0.0.1:8080."`
	Token  string `env:"ASYNCFLOW_TOKEN" placeholder:"JWT" help:"Token for the server. Better set in the environment."`
	Output string `short:"o" enum:"table,json" default:"table" help:"Format: table for people, json for programs."`
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
