package trees

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A decision by a link counts for one pass: the visit of the stage that was given the link, and
// the wait that comes right after it. In a loop, an old link must not decide about what is asked
// anew. So each signal of a link names its pass in its idempotency key (asyncflow.LinkKey), and a
// wait with links takes no signals of other passes.

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
		v.stage, _ = t.Place(v.stage, 1)
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

// WaitPass returns the Pass of the visit right before a wait; ok reports whether there is one. A
// redrive of the wait itself doesn't change it.
func (v Visits) WaitPass(seq int) (pass int, ok bool) {
	for i := len(v) - 1; i >= 0; i-- {
		if v[i].seq < seq && v.ends(i) {
			return v.Pass(v[i].seq), true
		}
	}
	return 0, false
}

// Signalled returns the seq of the row in which the wait of a stage took its signal after a pass;
// ok reports whether there is one.
func (v Visits) Signalled(stage string, pass int) (seq int, ok bool) {
	for _, row := range v {
		if row.outcome != asyncflow.OutcomeSignalled || row.stage != stage || row.seq <= pass {
			continue
		}
		if of, ok := v.WaitPass(row.seq); ok && of == pass {
			return row.seq, true
		}
	}
	return 0, false
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

// linkKeys returns which signals of links each wait may take: "" for all, else the one with an
// idempotency key. It reads journals of tasks only for which there are such signals.
func (f *followUp) linkKeys(t *config.Type, waits []*signalWait) ([]string, error) {
	keys := make([]string, len(waits))
	var ids []int64
	for i, w := range waits {
		if w.wait.Links != nil {
			keys[i] = noLink
			ids = append(ids, w.ID.Number)
		}
	}
	if ids == nil {
		return keys, nil
	}
	sent := map[int64][]string{}
	var id int64
	var key string
	rows, err := f.tx.Query(f.ctx, t.SQL(0, LinkedSignalsSQL), t.Number(), ids)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
			sent[id] = append(sent[id], key)
			return nil
		})
	}
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
		if pass, ok := visits.With(w.Seq, w.Stage, asyncflow.WaitSignal).WaitPass(w.Seq); ok {
			keys[i] = cmp.Or(keyOfPass(t, w, pass, sent[w.ID.Number]), noLink)
		}
	}
	return keys, nil
}

// keyOfPass returns which of some idempotency keys is of a wait's pass. The stage may have had
// another name when the signal was sent.
func keyOfPass(t *config.Type, w *signalWait, pass int, keys []string) string {
	for _, name := range t.NamesOf(w.Stage) {
		if key := asyncflow.LinkKey(w.ID, name, pass); slices.Contains(keys, key) {
			return key
		}
	}
	return ""
}

// noLink is the idempotency key of no signal.
const noLink = "link/"

// LinkedSignalsSQL returns the idempotency keys of the signals that links sent to tasks.
const LinkedSignalsSQL = `
SELECT u.id, k.idempotency_key FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT k.idempotency_key FROM {signals} k WHERE k.type = $1 AND k.task = u.id AND NOT k.taken
    AND starts_with(k.idempotency_key, 'link/') OFFSET 0) k`
