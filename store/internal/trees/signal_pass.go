package trees

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A decision by a link counts for one pass: the visit of the stage that was given the link, and
// the wait that comes right after it. In a loop, an old link must not decide about what is asked
// anew. A redrive to a wait that took its signal asks once more: it begins another round of the
// pass, as nobody gets new links. Each signal of a link names its round in its idempotency key
// (asyncflow.LinkKey), and a wait with links takes no signals of other rounds. It takes the
// decision of its round before any other signal, as the page said that it is recorded.

// Visits are the rows of a task's journal, and at last its token row if it is live, as far as they
// show where visits of stages end.
type Visits []visitRow

type visitRow struct {
	seq     int
	stage   string
	outcome asyncflow.OutcomeKind
	final   bool
	waits   bool // the token row of a task that waits for its children
}

// ReadVisits reads the rows of a task's journal up to a seq. An attempt that started tasks and
// waited for them ends no visit, as the task stays in its stage: its row counts as fanned out.
func ReadVisits(
	ctx context.Context, db postgres.Querier, t *config.Type, id asyncflow.TaskID, seq int,
) (Visits, error) {
	rows, err := db.Query(ctx, t.SQL(id.Position(), `
		SELECT seq, stage, CASE WHEN `+hot.WaitsThen+` THEN $4 ELSE outcome END, final IS NOT NULL
		FROM {journal} j WHERE type = $1 AND id = $2 AND seq <= $3 ORDER BY seq`), t.Number(),
		id.Number, seq, string(asyncflow.OutcomeFannedOut))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (v visitRow, err error) {
		err = row.Scan(&v.seq, &v.stage, &v.outcome, &v.final)
		v.stage, _ = t.Mapped(v.stage, 1)
		return v, err
	})
}

// With adds the token row of a live task, and what it waits for.
func (v Visits) With(seq int, stage string, reason asyncflow.WaitReason) Visits {
	return append(v, visitRow{seq: seq, stage: stage,
		waits: reason == asyncflow.WaitChildren})
}

// Pass returns the seq of the last row before a visit; 0: there is none. The visit is the one to
// which the row with a seq belongs. A redrive of the stage begins a visit, too.
func (v Visits) Pass(seq int) int {
	for i := len(v) - 1; i >= 0; i-- {
		if v[i].seq < seq && (v.ends(i) || v.redriven(i)) {
			return v[i].seq
		}
	}
	return 0
}

// WaitPass returns the Pass of the visit that has the links of a wait: the one right before it or,
// after a redrive to the wait, the last one that was given links to it. ok reports whether there is
// one.
func (v Visits) WaitPass(t *config.Type, wait string, seq int) (pass int, ok bool) {
	return v.waitPass(wait, seq, v.linkPasses(t, wait))
}

func (v Visits) waitPass(
	wait string, seq int, linkPass func(row int) (int, bool),
) (pass int, ok bool) {
	for i := len(v) - 1; i >= 0; i-- {
		switch {
		case v[i].seq >= seq:
		case v[i].outcome == asyncflow.OutcomeRedriven && v[i].stage == wait:
			return linkPass(i)
		case v.ends(i):
			return v.Pass(v[i].seq), true
		}
	}
	return 0, false
}

// linkPasses returns a function: the Pass of the last visit before a row whose deliveries had links
// to a wait; ok reports whether there is one. All calls together walk once through the rows.
func (v Visits) linkPasses(t *config.Type, wait string) func(row int) (pass int, ok bool) {
	visits := sync.OnceValue(func() []int {
		has := map[string]bool{}
		for i := range t.Stages {
			has[t.Stages[i].Name] = t.HasLinksTo(t.Stages[i].Name, wait)
		}
		all := make([]int, len(v)) // the last row with links before each row
		last := -1
		for i, row := range v {
			all[i] = last
			if row.outcome != asyncflow.OutcomeRedriven && has[row.stage] {
				last = i
			}
		}
		return all
	})
	known := map[int]int{}
	return func(row int) (pass int, ok bool) {
		at := visits()[row]
		if at < 0 {
			return 0, false
		}
		if pass, ok = known[at]; !ok {
			pass = v[:row].Pass(v[at].seq)
			known[at] = pass
		}
		return pass, true
	}
}

// Round returns the last round of a pass, and the seq of the row in which the wait took its signal
// in that round; 0: it has not done so. The first round has the number of the pass, each other one
// the seq of the redrive to the wait with which it begins.
func (v Visits) Round(t *config.Type, wait string, pass int) (round, signalled int) {
	round = pass
	linkPass := v.linkPasses(t, wait)
	for i, row := range v {
		redriven := row.outcome == asyncflow.OutcomeRedriven && signalled > 0
		if row.seq <= pass || row.stage != wait ||
			!redriven && row.outcome != asyncflow.OutcomeSignalled {
			continue
		}
		end := row.seq
		if redriven {
			end++ // the redrive is part of the way to the wait
		}
		if of, ok := v[:i+1].waitPass(wait, end, linkPass); !ok || of != pass {
			continue
		}
		if redriven {
			round, signalled = row.seq, 0
		} else {
			signalled = row.seq
		}
	}
	return round, signalled
}

// redriven reports whether a row redrives its stage, and not only the tasks for which its task
// waits there.
func (v Visits) redriven(i int) bool {
	if v[i].outcome != asyncflow.OutcomeRedriven {
		return false
	}
	next := i + 1
	for next < len(v) && v[next].outcome == asyncflow.OutcomeChanged {
		next++
	}
	return next == len(v) || v[next].outcome != asyncflow.OutcomeJoined && !v[next].waits
}

// ends reports whether a visit ends with a row: the stage was passed, or another one comes after
// its last attempt has failed.
func (v Visits) ends(i int) bool {
	switch v[i].outcome {
	case asyncflow.OutcomeDone, asyncflow.OutcomeSignalled:
		return true
	case asyncflow.OutcomeJoined:
		return !v[i].final // too many children have failed: the task may wait for them again
	case asyncflow.OutcomeFailed, asyncflow.OutcomeRejected, asyncflow.OutcomeLost,
		asyncflow.OutcomeSnoozed, asyncflow.OutcomeTimedOut:
		return !v[i].final && i+1 < len(v) && v[i+1].stage != v[i].stage
	}
	return false
}

// linkKeys returns which signals each wait may take: "" stands for all, noLink for all but the
// signals of links, any other idempotency key for the signal with that key. alive is the time until
// which each wait needs its signal kept. It reads a task's journal only if links sent it signals.
func (f signalFollowUp) linkKeys(
	t *config.Type, waits []*signalWait, alive []time.Time,
) ([]string, error) {
	keys := make([]string, len(waits))
	var ids []int64
	var names []string
	var kept []time.Time
	for i, w := range waits {
		if w.wait.Links != nil {
			keys[i] = noLink
			ids = append(ids, w.ID.Number)
			names = append(names, w.wait.Signal)
			kept = append(kept, alive[i])
		}
	}
	if ids == nil {
		return keys, nil
	}
	sent := map[int64][]string{}
	var id int64
	var key string
	rows, err := f.tx.Query(f.ctx, t.SQL(0, LinkedSignalsSQL), t.Number(), ids, names, kept)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		sent[id] = append(sent[id], key)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, w := range waits {
		if keys[i] == "" || len(sent[w.ID.Number]) == 0 {
			continue
		}
		visits, err := ReadVisits(f.ctx, f.tx, t, w.ID, w.Seq-1)
		if err != nil {
			return nil, err
		}
		visits = visits.With(w.Seq, w.Stage, asyncflow.WaitSignal)
		if pass, ok := visits.WaitPass(t, w.Stage, w.Seq); ok {
			round, _ := visits.Round(t, w.Stage, pass)
			keys[i] = cmp.Or(keyOfRound(t, w, round, sent[w.ID.Number]), noLink)
		}
	}
	return keys, nil
}

// keyOfRound returns which of some idempotency keys is of a round of a wait. The stage may have had
// another name when the signal was sent.
func keyOfRound(t *config.Type, w *signalWait, round int, keys []string) string {
	for _, name := range t.NamesOf(w.Stage) {
		if key := asyncflow.LinkKey(w.ID, name, round); slices.Contains(keys, key) {
			return key
		}
	}
	return ""
}

// noLink is the idempotency key of no signal.
const noLink = "link/"

// LinkedSignalsSQL returns the idempotency keys of the signals that links sent to tasks for what
// they wait for.
const LinkedSignalsSQL = `
SELECT u.id, k.idempotency_key FROM unnest($2::bigint[], $3::text[], $4::timestamptz[])
  AS u (id, name, alive), LATERAL (
  SELECT k.idempotency_key FROM {signals} k WHERE k.type = $1 AND k.task = u.id
    AND k.name = u.name AND NOT k.taken AND k.kept_until > u.alive
    AND starts_with(k.idempotency_key, 'link/') OFFSET 0) k`
