// Command bench measures asyncflow on one machine: a Postgres that keeps its promises (fsync and
// synchronous commits), a node, a worker and a client, each a process of its own, all on the
// loopback.
//
//	go run ./bench [--only post,river-post] [--rounds 5] [--tasks 60000] [--short] [--json FILE]
//
// Each file asks one question; in internal/ is what all of them use: rig runs and measures the
// processes, report prints.
//
// Every round measures every scenario once (rounds_scenarios.go lists them). What is compared is
// measured one after the other, every second round in the reverse order. The bench prints three
// tables: the targets and whether they are met, what a task costs in each scenario, and the rest.
// Peers (peers.go) take part once "make bench-peers" installed them.
//
// Of many small tenants there are these rows: one, tenants and skew submit one task a call, as fast
// as they can, to one type or to 1,000 types in 100 tenants; types and types1500 do so at a rate.
// Beside each is River with as many kinds:
//
//	go run ./bench --only one,river-one,tenants,river-kinds,skew,river-skew
//	go run ./bench --only types,one-type,river-types,types1500
//
// The node gets the environment of this program, so that settings can be tried:
//
//	ASYNCFLOW_CONCURRENCY=1024 GOGC=400 go run ./bench --only post --rounds 3
//
// Two revisions are measured by turns:
//
//	go run ./bench compare --base HEAD~1
//
// Other questions are measured by themselves, each by the name of its mode:
//
//	go run ./bench citus      what does a task cost on Citus?
//	go run ./bench fair       what do turns of flow keys cost?
//	go run ./bench held       what do tasks that their flow key blocks cost the others?
//	go run ./bench history    do a million finished tasks slow down new ones, gets and lists?
//	go run ./bench idle       what do task types cost that have nothing to do, and to make them?
//	go run ./bench noisy      what does a tenant cost the others that floods a hanging endpoint?
//	go run ./bench poolers    what does a pooler cost each task?
//	go run ./bench traces     what do traces cost each task?
//	go run ./bench pools      how many hot connections should a node have?
//	go run ./bench profile    where does the time of a task go?
//	go run ./bench promote    what happens when a million delayed tasks are due at once?
//	go run ./bench rolls      do submits take longer while tables roll?
//	go run ./bench sizing     what does a task cost, by the features that it uses?
//	go run ./bench snapshot   do leases get slow while a transaction is open for minutes?
//	go run ./bench sustained  is the rate of the first minute that of the twentieth?
//	go run ./bench upgrade    for how long do the indexes of migrations hold up tasks?
//
// Each takes --short, --json FILE and --plots DIR, which writes SVG; see --help.
//
// Figures of a machine that is busy with other things mean little. The result names the load at the
// start, and how many cores the four processes used. The rate that all cores would allow by the CPU
// time of a task is disturbed less. No figure makes the program fail, except one that shows that
// something is broken: lost tasks, or nothing done; and a comparison in which every pair shows that
// tasks cost far more CPU time than before.
package main
