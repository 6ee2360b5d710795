package asyncflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// linked is a type with a stage before a wait with links.
func linked(links Links) TaskType {
	t := TaskType{Name: "orders", Stages: []Stage{{Name: "ask"},
		{Name: "review", Mode: ModeWait, Wait: &Wait{Signal: "reviewed",
			Timeout: NewDuration(time.Hour), Links: &links}},
		{Name: "ship"}}}
	return t.WithDefaults()
}

// Links are read back as they were written.
func TestLinksInJSON(t *testing.T) {
	t.Parallel()
	for doc, names := range map[string][]string{
		`true`:                      {"approve", "reject"},
		`{"summary":"/order/text"}`: {"approve", "reject"},
		`{"decisions":["ok"]}`:      {"ok"},
		`{"decisions":["a","b","c"],"summary":"/x"}`: {"a", "b", "c"},
	} {
		var l Links
		require.NoError(t, json.Unmarshal([]byte(doc), &l), doc)
		require.Equal(t, names, l.Names(), doc)
		again, err := json.Marshal(l)
		require.NoError(t, err)
		require.Equal(t, doc, string(again))
	}
	for _, doc := range []string{`false`, `{}`, `[]`, `"yes"`, `1`, `{"decisions":[]}`,
		`{"decision":["a"]}`, `{"decisions":"a"}`} {
		var l Links
		require.ErrorContains(t, json.Unmarshal([]byte(doc), &l), "must be true, or an object", doc)
	}
}

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	require.NoError(t, linked(Links{}).Validate())
	require.NoError(t, linked(Links{Decisions: []string{"a", "b", "c", "d", "e"},
		Summary: "/" + strings.Repeat("x", MaxPointer-1)}).Validate())
	require.NoError(t, branching(5, 5, 5, 5).Validate())
	change := func(do func(*TaskType)) TaskType {
		spec := linked(Links{})
		do(&spec)
		return spec
	}
	const nobody = "stages[1].wait.links would be given to nobody"
	for want, spec := range map[string]TaskType{
		"decisions has 6 entries; it must have 1 to 5": linked(Links{
			Decisions: []string{"a", "b", "c", "d", "e", "f"}}),
		"decisions[0] must start with":    linked(Links{Decisions: []string{"<b>"}}),
		"decisions[1] is \"a\", which an": linked(Links{Decisions: []string{"a", "a"}}),
		"links.summary is \"text\"":       linked(Links{Summary: "text"}),
		"links.summary is 1025 bytes": linked(Links{
			Summary: "/" + strings.Repeat("x", MaxPointer)}),
		nobody: change(func(t *TaskType) {
			t.Stages[0].FanOut = &FanOut{Shards: 2}
		}),
		nobody + ":": change(func(t *TaskType) {
			t.Stages[0].Quorum = &Quorum{Votes: 2}
		}),
		"stages[0] has deliveries with 21 links, by wait.links of the stages that may come next; " +
			"the limit is 20": branching(5, 5, 5, 5, 1),
		"stages[0].wait.links would": change(func(t *TaskType) { t.Stages = t.Stages[1:] }),
	} {
		t.Run(want, func(t *testing.T) {
			require.ErrorContains(t, spec.Validate(), strings.TrimSuffix(want, ":"))
		})
	}
}

// branching is a type: its first stage leads to waits with so many decisions each.
func branching(decisions ...int) TaskType {
	t := linked(Links{})
	t.Stages = t.Stages[:1]
	for i, n := range decisions {
		name := fmt.Sprintf("wait-%d", i)
		t.Stages[0].Next = append(t.Stages[0].Next, name)
		links := &Links{Decisions: []string{"a", "b", "c", "d", "e"}[:n]}
		t.Stages = append(t.Stages, Stage{Name: name, Mode: ModeWait, Next: []string{NextFinish},
			Wait: &Wait{Signal: "reviewed", Timeout: NewDuration(time.Hour), Links: links}})
	}
	return t.WithDefaults()
}

// Deliveries of every stage from which a task may come to the wait carry its links, no others.
func TestLinksAfter(t *testing.T) {
	t.Parallel()
	spec := linked(Links{Decisions: []string{"ok"}})
	want := []WaitLinks{{Stage: "review", Decisions: []string{"ok"}, Timeout: time.Hour}}
	require.Equal(t, want, spec.LinksAfter("ask"))
	require.Nil(t, spec.LinksAfter("review"))
	require.Nil(t, spec.LinksAfter("ship"))
	require.Nil(t, spec.LinksAfter("none"))
	spec.Stages[0].Next = []string{"ship"}
	require.Nil(t, spec.LinksAfter("ask"))
	spec.Stages[2].Next = []string{"review", NextFinish}
	require.Equal(t, want, spec.LinksAfter("ship"))
	spec.Stages[0].OnFailure = &StageFailure{Next: "review"}
	require.Equal(t, want, spec.LinksAfter("ask"))
	spec.Stages[1].Wait.Links = nil
	require.Nil(t, spec.LinksAfter("ask"))
}

func TestSummaryOf(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]string{
		`{"summary":"Two <b>pizzas</b>\n& more"}`: "Two <b>pizzas</b>\n& more",
		`{"summary":{"n": 2}}`:                    `{"n": 2}`,
		`{"summary":""}`:                          "",
		`{"summary":"\ud800"}`:                    "\uFFFD",
		`{"other":1}`:                             "",
		`"text"`:                                  "",
		`null`:                                    "",
	} {
		require.Equal(t, want, Links{}.SummaryOf(json.RawMessage(context)), context)
	}
	require.Equal(t, "b", Links{Summary: "/a/1"}.SummaryOf(json.RawMessage(`{"a":["a","b"]}`)))
	long := Links{}.SummaryOf(json.RawMessage(`{"summary":"` + strings.Repeat("é", 3000) + `"}`))
	require.Equal(t, strings.Repeat("é", MaxSummaryBytes/2)+"…", long)
}

func TestLinkDecision(t *testing.T) {
	t.Parallel()
	for by, fine := range map[string]bool{
		"Anna": true, "<b>": true, strings.Repeat("é", MaxDecidedBy): true,
		"": false, " \t": false, strings.Repeat("é", MaxDecidedBy+1): false,
		"a\nb": false, "a\x00": false, "\xff": false,
	} {
		err := LinkDecision{Decision: "approve", By: by}.Validate()
		require.Equal(t, fine, err == nil, "%q: %v", by, err)
	}
}

// Only links send signals with their keys.
func TestKeysOfLinks(t *testing.T) {
	t.Parallel()
	key := LinkKey(NewTaskID("orders", 1, 42), "review", 3)
	require.Equal(t, "link/orders.1.42/review/3", key)
	longest := strings.Repeat("x", MaxNameLength)
	require.LessOrEqual(t, len(LinkKey(NewTaskID(longest, MaxPosition, 1<<40-1), longest, 1<<15-1)),
		MaxKeyLength)
	err := Signal{Name: "reviewed", Task: "orders.1.42", IdempotencyKey: key}.Validate()
	require.ErrorContains(t, err, "Idempotency-Key begins with link/, as only those of links do")
	require.NoError(t, Signal{Name: "reviewed", Task: "orders.1.42",
		IdempotencyKey: fmt.Sprint("a", key)}.Validate())
}
