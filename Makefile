# make help lists the targets. The jobs of CI run .ci/run, .ci/generators, .ci/long and .ci/poolers.

VERSION ?= dev
GO ?= go
FUZZTIME ?= 1m

.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: ## Run everything on this machine, with a Postgres of its own
	$(GO) run ./cmd/asyncflow dev

build: ## Build bin/asyncflow and bin/thumbnails
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" \
		-o bin/asyncflow ./cmd/asyncflow
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/thumbnails ./examples/thumbnails/cmd/thumbnails

test: ## Run all tests, also those that cost most
	ASYNCFLOW_TEST_ALL=1 $(GO) test ./...

race: ## Run all tests with the race detector
	ASYNCFLOW_TEST_ALL=1 CGO_ENABLED=1 $(GO) test -race ./...

test-long: ## Run all tests in their long form, with the race detector but for model and signals
	.ci/long

LONG = ASYNCFLOW_TEST_LONG=1 $(GO) test -count=1 -v

model: ## Compare the store with its models in 200 or 1,000 random sequences each
	$(LONG) -timeout 1h -run 'Model$$' ./store -parallel 16

fairness: ## Lease beside a flow key with a million due tasks
	$(LONG) -run '^TestFairFewBesideMany$$' ./store

test-postgres: ## Run the tests of the store and of whole nodes on Postgres 15 to 18
	.ci/postgres

test-poolers: ## Run the tests of the API through PgBouncer, in session and transaction mode
	.ci/poolers

citus-test: ## Run the tests on a coordinator of Citus and two workers; takes an hour
	.ci/citus

rolls: ## Roll tables every 2,000 tasks under load for a minute, with a node killed
	$(LONG) -run '^TestRollsUnderLoad$$' ./cmd/asyncflow

tree: ## Kill two nodes while a tree of 10,000 spawns and joins
	$(LONG) -run '^TestTreeSurvivesKills$$' ./cmd/asyncflow

signals: ## Let 100,000 signals meet waits, with nodes that die; takes 10 minutes
	$(LONG) -timeout 2h -run '^TestSignalsMeetWaits$$' ./dispatcher

backup-test: ## Run the commands of docs/backup.md: restore to a moment, and from a dump
	$(LONG) -run '^TestRestore(ToAMoment|ADump)$$' ./cmd/asyncflow

failover-test: ## Lose the primary under load in seven ways, ten times each; takes 25 minutes
	$(LONG) -timeout 2h -run '^TestFailover$$' ./cmd/asyncflow

rolling-test: ## Replace nodes one by one behind a proxy, those of this and of an earlier commit
	$(LONG) -run '^TestRolling(Restart|Upgrade)$$' ./cmd/asyncflow

fuzz: ## Run every fuzz target for a minute; FUZZTIME=10m for longer
	.ci/fuzz $(FUZZTIME)

fuzz-short: ## Try 1,000 inputs with every fuzz target, as CI does
	.ci/fuzz 1000x

lint: ## Check the format, vet, staticcheck and openapi.yaml
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet -tags bundle ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0 -tags bundle ./...
	npx --yes @redocly/cli@2.77.0 lint openapi.yaml
	npx --yes @stoplight/spectral-cli@6.16.3 lint \
		--ruleset .ci/spectral.yaml --fail-severity warn openapi.yaml

generate: ## Make the code that comes from openapi.yaml again
	$(GO) generate ./client/api ./internal/httpapi

typescript: ## Install the tools of sdk/typescript, and test it
	npm --prefix sdk/typescript ci --no-audit --no-fund
	$(GO) test -count=1 -v -run '^TestTypeScript$$' ./cmd/asyncflow

generators: ## Compile the clients that other generators make from openapi.yaml, and call a node
	.ci/generators

contract: ## Call a node with what schemathesis makes up from openapi.yaml, for 10 minutes
	.ci/contract

generate-typescript: ## Make the types of sdk/typescript from openapi.yaml again
	npm --prefix sdk/typescript ci --no-audit --no-fund
	npm --prefix sdk/typescript run generate

web: ## Check the console's sources, and bundle them into web/assets
	npm --prefix web ci --no-audit --no-fund
	npm --prefix web run check
	$(GO) generate ./web

screenshots: ## Take the pictures of docs/console.md again
	$(GO) test -count=1 -run '^TestPages$$' ./web -screenshots ../docs/console

bench: bench-peers ## Measure all targets, beside the peers; takes 30 minutes
	$(GO) run ./bench

bench-peers: ## Build and install the peers
	$(GO) -C bench/peers build -o ../../bin/peers/river ./river
	npm --prefix bench/peers ci --no-audit --no-fund

BASE ?= HEAD

bench-compare: ## Compare CPU per task with another revision: make bench-compare BASE=v0.4.0
	$(GO) run ./bench compare --base $(BASE)

bench-short: ## Measure for a few seconds, to see that it works
	$(GO) run ./bench --short

bench-citus: ## Measure what a task costs on Citus, which has to be installed
	$(GO) run ./bench citus

bench-profile: ## Show where the time of a task goes, in the node and in Postgres
	$(GO) run ./bench profile

bench-history: ## Measure with 0, 1 and 10 million finished tasks; takes 20 GB
	$(GO) run ./bench history --sizes 0,1000000,10000000 --plots docs/performance

bench-rolls: ## Measure what rolls cost submits
	$(GO) run ./bench rolls

bench-promote: ## Measure what happens when a million delayed tasks are due at once
	$(GO) run ./bench promote

bench-held: ## Measure what tasks that their flow key blocks cost the others
	$(GO) run ./bench held

bench-noisy: ## Measure what a noisy tenant costs a quiet one
	$(GO) run ./bench noisy

bench-snapshot: ## Measure leases while a transaction is open for 5 minutes
	$(GO) run ./bench snapshot --plots docs/performance

bench-sustained: ## Measure a run of 20 minutes
	$(GO) run ./bench sustained --plots docs/performance

bench-idle: ## Measure what 10,000 idle task types in 1,000 tenants cost
	$(GO) run ./bench idle --types 0,10000 --tenants 1000

bench-sizing: ## Measure what a task costs, by the features that it uses
	$(GO) run ./bench sizing

bench-pools: ## Measure nodes with 2 to 32 hot connections
	$(GO) run ./bench pools

ci: ## Run .ci/run, the first job of CI; installs what is missing
	.ci/run

deploy: ## Write deploy/kubernetes again, from the chart
	$(GO) -C deploy/check test -count=1 -run '^TestPlainManifestsAreTheChart$$' . -write

deploy-check: ## Render the chart, and check it as Kubernetes does
	$(GO) -C deploy/check vet ./...
	$(GO) -C deploy/check test -count=1 ./...

docker: ## Build the image asyncflow
	docker build --build-arg VERSION=$(VERSION) --tag asyncflow .

compose: ## Run Postgres, two nodes and the sample worker in containers
	docker compose up --build

clean: ## Remove the built programs
	rm -rf bin dist

.PHONY: help dev web screenshots build test race test-long model fairness test-postgres citus-test \
	rolls signals backup-test failover-test rolling-test fuzz fuzz-short lint generate \
	generators contract typescript generate-typescript bench bench-peers bench-compare bench-short \
	bench-citus bench-profile bench-history bench-rolls bench-promote bench-held bench-noisy \
	bench-snapshot bench-sustained bench-idle bench-pools bench-sizing ci deploy deploy-check docker compose clean
