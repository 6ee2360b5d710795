package main

// cli is every command of asyncflow.
type cli struct {
	globalFlags

	Dev     devCmd     `cmd:"" group:"Run:" help:"Try it out: a node with a Postgres of its own, a token and samples."`
	Serve   serveCmd   `cmd:"" group:"Run:" help:"Run a node against your Postgres."`
	Migrate migrateCmd `cmd:"" group:"Run:" help:"Bring a database up to date."`
	Tenants tenantsCmd `cmd:"" group:"Run:" help:"Make, suspend and delete tenants and set their quotas, in the database."`
	Token   tokenCmd   `cmd:"" group:"Run:" help:"Make tokens for callers of the API."`
	Keys    keysCmd    `cmd:"" group:"Run:" help:"Make and change the keys that tokens are signed with, and change the secret that all nodes share."`

	Governance governanceCmd `cmd:"" group:"Run:" help:"See and run the jobs that go on beside the requests, in the database."`

	Tasks     tasksCmd     `cmd:"" group:"Use:" help:"Submit tasks and see what became of them."`
	Types     typesCmd     `cmd:"" group:"Use:" help:"Set up task types: pipelines of stages."`
	Endpoints endpointsCmd `cmd:"" group:"Use:" help:"Set up endpoints: the URLs of workers."`
	Stats     statsCmd     `cmd:"" group:"Use:" help:"Count what is waiting, running and done."`

	Schedules  schedulesCmd  `cmd:"" group:"Use:" help:"Set up schedules: what submits a task again and again."`
	Alerts     alertsCmd     `cmd:"" group:"Use:" help:"Be told when something is wrong."`
	Audit      auditCmd      `cmd:"" group:"Use:" help:"See who did what, from where."`
	Operations operationsCmd `cmd:"" group:"Use:" help:"See and stop what cancels or redrives many tasks."`

	Verify verifyCmd `cmd:"" group:"Use:" help:"Try out a worker: play a difficult dispatcher, and say what it gets wrong."`

	Healthcheck healthcheckCmd `cmd:"" group:"Other:" help:"Ask a server whether it can take requests."`
	Version     versionCmd     `cmd:"" group:"Other:" help:"Show the version."`
}

// globalFlags are understood by every command.
type globalFlags struct {
	URL    string `name:"url" env:"ASYNCFLOW_URL" placeholder:"URL" help:"Server to talk to. Default: a running asyncflow dev, else http://127.0.0.1:8080."`
	Token  string `env:"ASYNCFLOW_TOKEN" placeholder:"JWT" help:"Token to show it. Better set by the environment."`
	Output string `short:"o" enum:"table,json" default:"table" help:"table for people, json for programs."`
}

const description = `A durable dispatcher of HTTP callbacks on Postgres.

Start with: asyncflow dev

Exit codes:

    0  done
    1  the operation failed, or was refused
    2  the command line or a document is wrong
    3  the server can't be reached, or can't do it now
    4  there is no such task, task type, endpoint, schedule or tenant
    5  the token is missing or not good for this
    6  with --wait, or watched: the task failed, or was cancelled
    7  with --wait: the task was not final in time`
