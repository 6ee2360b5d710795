package main

import "github.com/alecthomas/kong"

// addHelp adds the help texts that are too long for the tags of their fields.
func addHelp(command *kong.Node) {
	path := command.Path() // such as "tasks list"
	for _, f := range command.Flags {
		if f.Help == "" {
			f.Help = longHelp(path, "--"+f.Name)
		}
	}
	for _, argument := range command.Positional {
		if argument.Help == "" {
			argument.Help = longHelp(path, argument.Name)
		}
	}
	for _, child := range command.Children {
		addHelp(child)
	}
}

// longHelp returns the text of a command's flag or argument: its own, or that of flags that several
// commands share.
func longHelp(command, name string) string {
	if text, ok := longTexts[command][name]; ok {
		return text
	}
	return longTexts[""][name]
}

// longTexts are the help texts that are too long for a tag, by command and by flag or
// argument. Entries of the command "" belong to flags of several commands.
var longTexts = map[string]map[string]string{
	"": {
		"--url": "URL of the server. Default: that of a running asyncflow dev, else " +
			"http://127.0.0.1:8080.",
		"--trace-url": "Link of a task's trace in the console: a URL with {trace_id}, such as " +
			"https://tempo.example.com/trace/{trace_id}.",
		"--token":  "Token for the server. Better set in the environment.",
		"--output": "Format: table for people, json for programs; quiet for listen only.",
		"--batch": "The most tasks in one request, for a worker that answers for each of them; 0: " +
			"one request per task.",
		"--batch-wait": "With --batch: how long a task may wait for others to fill the request, up " +
			"to 5s. Default: 0s.",
		"--database-url": "Postgres: postgres://user:password@host:5432/database.",
		"--pooled-url": "The same database through a pooler that may be in transaction mode, for " +
			"calls and tasks. The rest goes over the database's URL, which must keep sessions.",
		"--database-roles": "Whether each tenant's work runs under its own database role (on, off), " +
			"so that Postgres itself keeps tenants apart. All nodes of a database must agree.",
		"--distributed": "Where the database has the extension Citus: whether it gives each new " +
			"tenant to one of its workers (auto), or all stay on the server of the URL (off).",
		"--max-pause": "Give a move up, and leave the tenant where it is, when its submits and " +
			"deliveries have been blocked for so long.",
		"--egress-allow": "The only destinations that deliveries may have: networks, hosts, " +
			"*.suffix or *, each with an optional :port or :port-port. Listing a private network " +
			"allows it. Separate several by commas, or repeat the flag.",
		"--egress-deny": "Destinations that deliveries must not have, even if --egress-allow allows " +
			"them; in the same form.",
		"--allow-private-networks": "Allow connections to loopback and private networks.",
		"--job": "When a background job runs: a cron spec in UTC, @every 5s, or off. Separate " +
			"several by commas, or repeat the flag.",
		"--secret":      "The secret that all nodes share. Set it in the environment.",
		"--old-secrets": "Earlier secrets, separated by commas. Set them in the environment.",
		"file":          "The private key that signs tokens, as asyncflow keys generate created it.",
		"--public":      "The public keys that nodes read (PEM). Default: FILE.pub.",
		"--type":        "Instead of an id: all tasks of this type that the other filters match.",
		"--error": "With --type: only tasks whose last error contains this text, in upper or lower " +
			"case.",
		"--since": "With --type: only tasks submitted at or after this time: RFC 3339, or a " +
			"duration before now such as 1h.",
		"--ended-since": "Only final tasks that ended at or after this time, whenever they were " +
			"submitted: RFC 3339, or a duration before now such as 1h.",
		"--state": "File that says where the last export ended; FILE.next is written for the next " +
			"one. While there is none, the export begins with --since, or --ended-since.",
		"--lag": "With --state: leave what happened within this time before now for the next " +
			"export, so that a transaction which commits late is found.",
		"--code": "Only tasks with this code in their last error: an HTTP status such as 503, 5xx, " +
			"timeout, lost or the word before the colon of the error.",
	},
	"audit export": {
		"--since": "Where to begin while there is no FILE: RFC 3339, or a duration before now such " +
			"as 24h. Default: with the oldest entry.",
		"--outcome":  "Only entries with this outcome: done, refused, denied or failed.",
		"--operator": "The entries that belong to no tenant. Needs an operator's token.",
	},
	"failures": {
		"--since": "Only tasks that failed at or after this time: RFC 3339, or a duration before now " +
			"such as 1h.",
	},
	"workers": {
		"--since": "Only attempts that ended at or after this time, at most a day ago: RFC 3339, or " +
			"a duration before now such as 1h.",
	},
	"alerts set": {
		"alert-url": "URL that gets the alerts. (--url is the server's.)",
		"--secret": "Signing secret of your own: whsec_ and base64. Default: the present one; if " +
			"there is none, the server makes one, which is shown only now.",
		"--backlog-age": "Fire when a task of a type has been due for this long without being " +
			"started, whatever the reason.",
		"--failure-rate": "Fire when at least this share of a type's attempts in the last 5 minutes " +
			"was unsuccessful: 0.01 to 1.",
		"--endpoint-failure-rate": "Fire when at least this share of an endpoint's attempts in the " +
			"last 5 minutes failed because of it: 0.01 to 1.",
		"--failure-attempts": "Ignore failure rates with fewer attempts than this in the 5 minutes. " +
			"Default: 20.",
		"--no-claimers": "Fire when a task has waited for a claimer for this long, and nobody has " +
			"asked for tasks of its stage meanwhile: at least 2m.",
		"--dependency-late": "Fire when a task has waited for the tasks that it depends on for this " +
			"long.",
		"--failed-for-good": "Fire when this many tasks of a type have failed for good, whatever " +
			"their share.",
		"--failed-in-total": "Fire when this many tasks of all types together have failed for good.",
		"--failed-within":   "The period over which failed tasks are counted: 1m to 24h. Default: 1h.",
		"--blocked-key": "Fire when a flow key of an ordered type has stood still for this long, " +
			"because of a failed task or of one that waits or is retried.",
		"--long-wait": "Fire when 1 % of the started tasks of a type had been due for at least " +
			"this, or when none is started and one has been due for this long: at least 10ms.",
		"--long-wait-within": "--long-wait looks at the tasks that were started within this period: " +
			"1m to 1h. Default: 5m.",
		"--will-expire": "Fire when the lifetimes of this many tasks of a type that are not running " +
			"end within --will-expire-within: 1 to 1,000,000.",
		"--will-expire-within": "How long before the end of their lifetimes tasks are counted: 1m " +
			"to 24h. Default: 5m.",
	},
	"audit list": {
		"--since": "Only entries at or after this time: RFC 3339, or a duration before now such as " +
			"1h.",
		"--outcome": "Only entries with this outcome: done, refused, denied or failed.",
		"--operator": "List the entries that belong to no tenant, such as calls that were denied to " +
			"unknown callers and changes that commands made in the database. Needs an operator's " +
			"token.",
		"--follow": "List the last entries, oldest first, and then new ones as they come, until " +
			"interrupted.",
	},
	"dev": {
		"--data": "Directory for the data. Default: /var/lib/asyncflow for root, else " +
			"~/.local/share/asyncflow.",
		"--pg-bin": "Directory of initdb and postgres. Default: the usual places; if they are not " +
			"there, they are downloaded.",
		"--offline": "Download nothing, even if Postgres is not installed.",
		"--log-level": "Log level: debug, info (a line for each attempt), warn (for each failed " +
			"one) or error.",
	},
	"endpoints create": {
		"endpoint-url": "URL that gets the deliveries. (--url is the server's.)",
		"--weight": "Its share of the stage's deliveries, relative to the other endpoints, 0 to " +
			"100. Default: 1.",
		"--max-in-flight": "The most tasks leased for it at once, on all nodes together. Default: " +
			"no limit.",
		"--rate": "The most deliveries that may start within a period, such as 100/s, 5000/m or " +
			"10/h. Default: no limit.",
		"--secret": "Signing secret of your own: whsec_ or whsk_ and base64. Default: the server " +
			"makes one, which is shown only now.",
		"--secret-kind": "Kind of secret that the server makes: hmac, or ed25519 with a public key " +
			"for the worker. Default: hmac.",
		"--allow-duplicate": "Allow a URL that another endpoint of the stage already has.",
		"--file":            "YAML file with headers, auth and tls; - is standard input.",
	},
	"endpoints rotate-secret": {
		"--overlap": "How long the old secret also signs deliveries; 0s to 720h.",
		"--kind":    "Kind of the new secret: hmac or ed25519. Default: that of the old one.",
		"--secret": "Signing secret of your own. Default: the server makes one, which is shown only " +
			"now.",
	},
	"listen": {
		"--forward": "URL on this machine that gets the deliveries, such as http://localhost:3000.",
		"--type":    "Only this task type; repeat the flag for several. Default: all.",
		"--stage":   "Only stages of this name; repeat the flag for several. Default: all.",
		"--label": "Label of the claimer, such as lang=de, for tasks with rules; repeat the flag " +
			"for several.",
		"--secret": "Signing secret for new endpoints: whsec_ and base64. Better set in the " +
			"environment. Default: one that this machine has used for the server, or a new one.",
		"--print-secret": "Print the signing secret and nothing else, and end.",
	},
	"endpoints test": {
		"--context": "Context of the delivery: JSON, @FILE, or - for standard input. Default: {}.",
	},
	"endpoints update": {
		"--weight": "Its share of the stage's deliveries, relative to the other endpoints, 1 to " +
			"100; 0: no new deliveries.",
		"--max-in-flight": "The most tasks leased for it at once, on all nodes together; 0: no " +
			"limit.",
		"--rate": "The most deliveries that may start within a period, such as 100/s, 5000/m or " +
			"10/h; an empty text: no limit.",
		"--allow-duplicate": "Allow a URL that another endpoint of the stage already has.",
		"--file": "YAML file with headers, auth and tls, each of which replaces the present value; " +
			"- is standard input.",
	},
	"governance run": {
		"--audit-retention": "For the job forget: how long the audit keeps its entries. Default: " +
			"the job leaves them alone.",
	},
	"keys generate": {
		"--alg": "Algorithm: EdDSA (Ed25519), ES256 (P-256) or RS256 (3,072 bits).",
		"--out": "File for the private key, which only its owner can read. The public key goes to " +
			"FILE.pub.",
		"--kid": "Id by which tokens name the key. Default: its thumbprint (RFC 7638).",
	},
	"keys jwks": {
		"file": "A private key (PEM), public keys (PEM), or a JWK Set; - for standard input.",
	},
	"keys rotate": {
		"--kid": "Id by which tokens name the next key. Default: its thumbprint (RFC 7638).",
	},
	"keys show": {
		"file": "A private key (PEM), public keys (PEM), or a JWK Set; - for standard input.",
	},
	"serve": {
		"--alert-url": "URL for the operator's alerts: a node that is gone, a job or a roll that is " +
			"overdue.",
		"--alert-secret": "Secret that signs the operator's alerts: whsec_ and the base64 of 24 to " +
			"64 bytes. Set it in the environment.",
		"--audit-retention": "How long the audit keeps its entries: 24h to 10 years; 8760h is a " +
			"year.",
		"--trusted-proxies": "Networks of proxies whose X-Forwarded-For gives the caller's address, " +
			"such as 10.0.0.0/8, separated by commas.",
		"--max-connections": "The most connections to the API at once.",
		"--max-anonymous-connections": "The most of these on which no token has let a call in yet; " +
			"beyond that, a new one takes the place of an idle one. 0: half of --max-connections.",
		"--max-connections-per-ip": "The most connections from one IP address, or from one /64 for " +
			"IPv6; 0: no limit. Behind a proxy all come from its address.",
		"--max-streams": "The most event streams and calls that wait for the end of a task, at once.",
		"--max-streams-per-tenant": "The most of these for one tenant; 0: a quarter of " +
			"--max-streams.",
		"--max-body-memory": "The most bytes of memory for the bodies of requests in progress.",
		"--max-body-memory-per-tenant": "The most of these bytes for one tenant; 0: a quarter of " +
			"--max-body-memory.",
		"--console": "Serve the web console at /console.",
		"--instance-name": "Name of this installation for the console, such as staging: at most 40 " +
			"characters.",
		"--instance-color": "Color of this installation in the console, such as #c0392b.",
		"--oidc-issuer": "Issuer at which users of the console log in by OpenID Connect. It must be " +
			"one whose tokens the API trusts.",
		"--oidc-client-id": "Client id of the console at the issuer.",
		"--oidc-client-secret": "Secret of that client; without one it is a public client. Set it in " +
			"the environment.",
		"--oidc-scopes": "Scopes that the login asks for, separated by commas or spaces.",
		"--oidc-token":  "Which token of the issuer becomes the session: id or access.",
		"--jwt-secret": "HS256 secret of at least 32 bytes that signs tokens. Set it in the " +
			"environment.",
		"--jwt-secret-file": "File with one such secret per line, instead: any of them may sign a " +
			"token. A change is picked up.",
		"--jwt-public-keys-file": "File with public keys (EdDSA, ES256 or RS256; PEM or a JWK Set) " +
			"instead of a secret. A change is picked up.",
		"--jwt-issuer":     "Issuer that a token must have.",
		"--jwt-audience":   "Audience that a token must have.",
		"--jwt-type":       "The typ header that a tenant's token must have.",
		"--jwt-admin-type": "The typ header that an operator's token must have.",
		"--jwt-issuers-file": "YAML or JSON file of trusted issuers, instead of or in addition to " +
			"the issuer that the other flags describe.",
		"--database-url": "Postgres that keeps everything: " +
			"postgres://user:password@host:5432/database.",
		"--admin-listen": "Separate address for the calls that need an operator's token, such as " +
			"127.0.0.1:8082. They are then not served at --listen.",
		"--public-url": "URL at which workers reach this API to report. Default: http://127.0.0.1 " +
			"with the port of --listen.",
		"--roles": "Roles of this node.",
		"--secret": "Secret of at least 32 bytes that all nodes share. It seals endpoint secrets " +
			"and signs completion tokens. Set it in the environment.",
		"--old-secrets": "Earlier secrets, separated by commas, 5 at most: what they sealed and " +
			"signed stays valid. See asyncflow keys. Set them in the environment.",
		"--default-quotas": "Quotas of tenants without their own, such as pending_tasks=1000000, " +
			"separated by commas.",
		"--concurrency": "The most tasks in flight on this node at once.",
		"--context-bytes": "Byte budget for contexts in flight, and for outputs that aren't written " +
			"yet, on this node. It is approximate.",
		"--grace": "How long attempts in flight may take to end after a stop.",
		"--drain-delay": "How long the API goes on after a stop, while /readyz answers 503: load " +
			"balancers need the time to notice.",
		"--pool":     "Database connections for requests and background jobs.",
		"--hot-pool": "Database connections that submit, lease and settle tasks.",
		"--notify": "Tell other nodes of new tasks by LISTEN and NOTIFY. Without it dispatchers " +
			"poll.",
		"--poll": "Without NOTIFY: the mean interval, for all nodes together, at which an idle task " +
			"type is polled.",
		"--max-context":            "The most bytes of a task's context.",
		"--max-body":               "The most bytes of a request's body.",
		"--allow-http":             "Allow endpoints with plain http URLs.",
		"--allow-private-networks": "Allow deliveries to loopback and private networks.",
		"--verify-endpoints":       "Require that endpoints echo a challenge before they get deliveries.",
		"--trace-limit": "The most spans a second that each tenant's callers cause by marking " +
			"their traces as sampled; 0: such marks don't count.",
		"--metrics": "Where /metrics is served: api (on the port of the API, for admin tokens), " +
			"open (there, for all), a separate address such as 127.0.0.1:9090, or off.",
		"--log-format": "Log format: text or json.",
		"--log-level":  "Log level: debug, info, warn or error.",
	},
	"tasks cancel": {
		"--status": "With --type: only tasks with this status: waiting, pending or running.",
	},
	"tasks change": {
		"--context":  "With an id: send this context from the next attempt on.",
		"--retry":    "With an id: its own retry policy; {} is that of its type.",
		"--priority": "Seconds of head start, 0 to a year; several give one per stage: 60,0.",
		"--delay": "Start no sooner than this long from now, such as 5m; 0s is at once, for a retry " +
			"as well.",
		"--run-at": "Start no sooner than this time, in RFC 3339.",
		"--status": "With --type: only tasks with this status: waiting or pending.",
	},
	"tasks delay": {
		"--delay": "Start no sooner than this long from now, such as 5m; 0s is at once, for a retry " +
			"as well.",
		"--run-at": "Start no sooner than this time, in RFC 3339.",
		"--status": "With --type: only tasks with this status: waiting or pending.",
	},
	"tasks get": {
		"--wait": "Wait until the task is final, but no longer than this. The exit code then gives " +
			"its end.",
	},
	"tasks count":  filterTexts,
	"tasks export": filterTexts,
	"tasks list":   filterTexts,
	"tasks run-now": {
		"--status": "With --type: only tasks with this status: waiting or pending.",
	},
	"tasks erase": {
		"--status": "With --type: only tasks with this status: succeeded, failed or cancelled.",
	},
	"tasks redrive": {
		"--from-stage": "Continue with this stage: the one in which the task ended, or an earlier " +
			"one.",
		"--context": "With an id: send this context instead of the one that the stage had before.",
		"--status":  "With --type: only tasks with this status: failed (the default) or cancelled.",
	},
	"tasks rerun": {
		"--context": "With an id: give the new task this context instead of that of the old one.",
		"--context-patch": "Change the context of the old task by this JSON merge patch: its members " +
			"replace those of the context, and null removes one.",
		"--delay":  "With an id: start no sooner than this long from now, such as 5m.",
		"--run-at": "With an id: start no sooner than this time, in RFC 3339.",
		"--status": "With --type: only tasks with this status: succeeded, failed or cancelled.",
	},
	"tasks submit": {
		"--on-conflict":  "What becomes of it if the key stands for another task; default: return.",
		"--metadata":     "A short text by its name, to find the task by; repeatable.",
		"type":           "Task type. Without it, each line of --file must be a whole task.",
		"context":        "Context of the task: JSON, @FILE, or - for standard input. Default: {}.",
		"--file":         "Submit a task for each line of this file (JSON Lines); - is standard input.",
		"--delay":        "Start no sooner than this long from now, such as 5m.",
		"--run-at":       "Start no sooner than this time, in RFC 3339.",
		"--max-attempts": "The most attempts in each stage, 1 to 100. Default: the stage's.",
		"--key":          "Idempotency key: submitting the same key again returns the first task.",
		"--context-from": "What the first stage gets beside the context: dependencies, the results of " +
			"the tasks of --depends-on.",
		"--flow-key": "Flow key: tasks with the same key share the limits and order of the type's " +
			"flow.",
		"--on-final-secret": "What signs the events: whsec_ or whsk_, and base64. Default: a secret " +
			"of asyncflow's.",
		"--wait": "Wait for the end of the task and show it. The exit code gives its end.",
	},
	"tenants create": {
		"tenant": "Name of the tenant: a lower-case letter, then lower-case letters, digits, - and " +
			"_; at most 40 characters.",
	},
	"tenants get": {
		"--default-quotas": "Default quotas of the nodes, to show where the tenant has none of its " +
			"own.",
	},
	"tenants move": {
		"--to": "The worker, as Citus knows it; its port only if the host has several.",
	},
	"tenants set-quota": {
		"quota=limit": "task_types, endpoints, schedules, configuration_bytes, pending_tasks, " +
			"submits_per_second, context_bytes, deliveries_per_second or concurrency. The limit may " +
			"be none, or default.",
	},
	"token create": {
		"--admin": "Create an operator's token instead, for the calls that concern all tenants.",
		"--scope": "Scopes of a tenant's token: submit, read, work, operate, manage. Default: " +
			"submit,read,operate,manage.",
		"--ttl": "How long the token is valid; 10 years at most. Keep this short.",
	},
	"types diff": {
		"--file": "YAML or JSON document; - is standard input.",
	},
	"types resume": {
		"--ramp": "Begin with one task at a time on each node, and reach full speed after this time.",
	},
	"verify": {
		"worker-url": "URL of the worker. (--url is the server's; this command doesn't use it.)",
		"--context": "Context that the worker can process: JSON, @FILE, or - for standard input. " +
			"Default: {}.",
		"--secret": "Secret with which the worker verifies signatures: whsec_ (or the private key, " +
			"whsk_) and base64. Better set in the environment.",
		"--batch": "Send batches, as to an endpoint with batches of up to N tasks. Default: one " +
			"task per request.",
		"--report-within": "How long a report may take after an answer with 202, and how long to " +
			"watch a worker that was told to stop.",
		"--listen": "Address that takes the worker's reports. Port 0 is any free port.",
		"--callback-url": "URL at which the worker reaches --listen, if not by that address, such " +
			"as http://host.docker.internal:9999.",
		"--allow-private-networks": "Allow a worker on loopback or a private network.",
	},
}

// filterTexts are the help texts of filterFlags.
var filterTexts = map[string]string{
	"--status": "Only tasks with this status: waiting, pending, running, succeeded, failed or " +
		"cancelled.",
	"--error": "Only tasks whose last error contains this text, in upper or lower case.",
	"--since": "Only tasks submitted at or after this time: RFC 3339, or a duration before now " +
		"such as 1h.",
}
