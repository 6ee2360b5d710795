package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// treeTask is what a task that depends on others, or makes children, should be like.
type treeTask struct {
	id       asyncflow.TaskID
	status   asyncflow.Status
	reason   asyncflow.WaitReason // for which it waits
	stage    int
	attempt  int
	seq      int                           // of its token row; if final, of its last journal row
	last     asyncflow.OutcomeKind         // of its last journal row; "": none
	written  map[int]asyncflow.OutcomeKind // how each seq ended
	outputs  map[int]string                // with which output, if any
	ends     map[asyncflow.Status]bool     // all that it ever had
	contexts []string                      // what each stage is sent with
	leases   []asyncflow.Lease             // all that were ever given out
	deps     []asyncflow.Dependency        // what it depends on
	family   *family                       // of a child
	own      *family                       // the latest children of a task
}

// family is what the children of a task in one stage should be like.
type family struct {
	parent   *treeTask
	seq      int // names it
	waits    int // seq of the parent's row in wait
	rule     asyncflow.FanOut
	contexts []string // of the children
	children []*treeTask
	extra    int  // children that were redriven by themselves, whatever max_parallel is
	again    bool // the parent was redriven: the children that didn't succeed may be
}

// waitedFor reports whether the parent waits for the children.
func (f *family) waitedFor() bool {
	return f.parent.own == f && f.parent.reason == asyncflow.WaitChildren && f.parent.seq == f.waits
}

// count counts the children by their status; live ones are under "".
func (f *family) count() map[asyncflow.Status]int {
	n := map[asyncflow.Status]int{}
	for _, c := range f.children {
		if c.status.Final() {
			n[c.status]++
		} else {
			n[""]++
		}
	}
	return n
}

// tooMany reports whether too many children failed or were cancelled.
func (f *family) tooMany() bool {
	n := f.count()
	return f.rule.OnChildFailure.TooMany(n[asyncflow.StatusFailed]+n[asyncflow.StatusCancelled],
		len(f.contexts))
}

// results is the context of the next stage.
func (f *family) results() string {
	n := f.count()
	var outputs []string
	for _, c := range f.children {
		output := "null"
		if c.status == asyncflow.StatusSucceeded && c.outputs[c.seq] != "" {
			output = c.outputs[c.seq]
		}
		outputs = append(outputs, output)
	}
	return fmt.Sprintf(`{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,"results":[%s]}`,
		len(f.contexts), n[asyncflow.StatusSucceeded], n[asyncflow.StatusFailed],
		n[asyncflow.StatusCancelled], strings.Join(outputs, ","))
}

// treeMachine drives the store and its models through the same steps. Nothing is followed up but
// in a step: what follows from others' ends comes at any time after them.
type treeMachine struct {
	nodePair
	far      *bundle // another node
	t        *rapid.T
	types    []string // the names of the types
	tasks    map[asyncflow.TaskID]*treeTask
	order    []*treeTask
	keys     map[asyncflow.Dependency]*treeTask // the ones with the keys of types
	families map[familyKey]*family
	seen     world // the database after the last step
}

var treeTypes = []string{"base", "pipe"}

// Random steps and crashes lead tasks that depend on each other, and tasks with children, where a
// simple model says: no end is lost, no parent goes on twice, and none waits for ever.
func TestTreeModel(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for lane := range modelLanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) { eachSet(t, holdTreesAgainstModel) })
	}
}

func holdTreesAgainstModel(t *testing.T, b *bundle) {
	b.byHand()
	b.SetChunks(2, 2, 2)
	one, spec := base(), patient()
	one.Stages[0].Retry = spec.Stages[0].Retry
	spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items"}
	spec.OnFinal = b.told()
	one.OnFinal = spec.OnFinal
	b.put(one)
	b.put(spec)
	b.exec(`UPDATE tenant_acme.task_types SET awaited_since = now() - interval '1 h'`)
	b.exec(`UPDATE asyncflow.tenants SET version = version + 1 WHERE slug = 'acme'`) // to read it
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	far := open(t, b.url, "far")
	far.byHand()
	nodes := newNodePair(t, b)
	nodes.mortal.SetChunks(2, 2, 2)
	checkSequences(t, 7, func(rt *rapid.T) {
		m := &treeMachine{nodePair: nodes, far: far, t: rt, types: treeTypes,
			tasks: map[asyncflow.TaskID]*treeTask{}, keys: map[asyncflow.Dependency]*treeTask{},
			families: map[familyKey]*family{}}
		m.clear()
		rt.Repeat(m.steps())
		if rapid.Bool().Draw(rt, "trim") {
			m.trim(rt)
			return
		}
		m.finish()
	})
}

func (m *treeMachine) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"submit": m.submit, "work": m.work, "work on": m.work, "work more": m.work,
		"repeat": m.repeat,
		"expire": m.expire, "cancel": m.cancel, "redrive": m.redrive, "redrive more": m.redrive,
		"redrive at once":      m.redriveAtOnce,
		"redrive more at once": m.redriveAtOnce, "sweep": m.sweep,
		"follow up": m.followUp, "follow up more": m.followUp,
		"follow up twice at once": m.followUpTwice,
		"die":                     m.die, "roll": m.roll,
		"quiet": m.quiet, "": m.check,
	}
}

func (m *treeMachine) kind(name string) *store.Type {
	kind, err := m.b.Catalog.Type(tenant, name)
	require.NoError(m.t, err)
	return kind
}
