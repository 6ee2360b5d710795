package trees

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// The votes on a task are its children: see asyncflow.Quorum. Their journal tells who voted, and
// for what. The table `votes` says who holds or cast a vote, so that nobody votes twice.

// votesSQL reads the ends of children of one run.
const votesSQL = `
SELECT id, final, coalesce(endpoint, ''), output, at FROM {journal}
WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IS NOT NULL ORDER BY id`

// QueueVotes reads the votes on a task that are cast.
func QueueVotes(b *pgx.Batch, t *config.Type, o *records.FanOut, all *[]asyncflow.Vote) {
	for _, r := range o.Runs(0, o.Spawned) {
		if !t.Has(r.Position()) {
			continue
		}
		b.Queue(t.SQL(r.Position(), votesSQL), t.Number(), r.First, r.Last()).
			Query(func(rows pgx.Rows) error {
				v := asyncflow.Vote{}
				endpoint := ""
				var output []byte
				v.Task.Type = t.Name
				_, err := pgx.ForEachRow(rows,
					[]any{&v.Task.Number, &v.Status, &endpoint, &output, &v.At}, func() error {
						endpoint, _, _ = asyncflow.ParseRunLocation(endpoint)
						v.Claimer, v.Subject = asyncflow.ClaimerOf(endpoint)
						v.Outcome = o.Rule.Quorum.Outcome(output)
						*all = append(*all, v)
						output = nil
						return nil
					})
				return err
			})
	}
}

// readTallies counts the votes of the fan-outs with votes.
func (f fanOutFollowUp) readTallies(t *config.Type, all []*records.FanOut) error {
	b := &pgx.Batch{}
	votes := map[*records.FanOut]*[]asyncflow.Vote{}
	for _, o := range all {
		if o.Rule.Quorum != nil {
			votes[o] = &[]asyncflow.Vote{}
			QueueVotes(b, t, o, votes[o])
		}
	}
	if b.Len() > 0 {
		if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
			return err
		}
	}
	for o, cast := range votes {
		o.Tally = o.Rule.Quorum.Count(*cast)
	}
	return f.trust(t, all)
}

// voted returns the output, or the error, of a task on which the vote is over.
func voted(o *records.FanOut) (output json.RawMessage, problem string) {
	if o.Stopped {
		return nil, o.Tally.String()
	}
	doc, err := json.Marshal(o.Tally)
	if err != nil {
		return nil, err.Error()
	}
	return doc, ""
}

// queueCloseVotes forgets who voted on a task, except for late voters.
func queueCloseVotes(b *pgx.Batch, t *config.Type, o *records.FanOut) {
	if o.Tally != nil {
		b.Queue(t.SQL(0, `DELETE FROM {votes} WHERE type = $1 AND key = $2 AND until IS NULL`),
			t.Number(), o.VoteKey())
	}
}

// voterKept is how long the agreements of a claimer who no longer votes are kept.
const voterKept = 90 * 24 * time.Hour

// trust lets the vote of a claimer who often agreed with other voters decide alone.
func (f fanOutFollowUp) trust(t *config.Type, all []*records.FanOut) error {
	b := &pgx.Batch{}
	for _, o := range all {
		if o.Tally == nil {
			continue
		}
		claimer := o.Tally.First(o.Spawned)
		if claimer == "" {
			continue
		}
		b.Queue(t.SQL(0, `SELECT agreed FROM {voters}
			WHERE type = $1 AND stage = $2 AND claimer = $3 AND until > $4`), t.Number(), o.Stage,
			claimer, f.now).Query(func(rows pgx.Rows) error {
			var agreed int
			_, err := pgx.ForEachRow(rows, []any{&agreed}, func() error {
				o.Tally.Trust(agreed)
				return nil
			})
			return err
		})
	}
	if b.Len() == 0 {
		return nil
	}
	return f.tx.SendBatch(f.ctx, b).Close()
}

// voters holds how the claimers of decided tasks voted, in a transaction.
type voters map[voter]agreement

// voter is a claimer in a stage.
type voter struct{ stage, claimer string }

// agreement is how often in a row a claimer agreed.
type agreement struct {
	times int
	anew  bool // it disagreed before that
}

// add adds the votes on a task that was decided.
func (v *voters) add(o *records.FanOut) {
	for claimer, agreed := range o.Tally.Agreed() {
		if *v == nil {
			*v = voters{}
		}
		who := voter{o.Stage, claimer}
		a := (*v)[who]
		if a.times++; !agreed {
			a = agreement{anew: true}
		}
		(*v)[who] = a
	}
}

// queue writes them down, in one order, so that two transactions don't wait for each other. Without
// the join Citus loses the parameters of ON CONFLICT.
func (v voters) queue(b *pgx.Batch, t *config.Type, now time.Time) {
	if len(v) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(v), func(a, b voter) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.claimer, b.claimer))
	})
	b.Queue(t.SQL(0, `
		INSERT INTO {voters} AS v (type, stage, claimer, agreed, until)
		SELECT $1, u.stage, u.claimer, u.agreed, $2
		FROM unnest($3::text[], $4::text[], $5::int[], $6::bool[]) AS u (stage, claimer, agreed,
		  anew) JOIN {types} y ON y.number = $1
		ON CONFLICT (type, stage, claimer) DO UPDATE SET until = excluded.until,
		  agreed = excluded.agreed + CASE WHEN
		    (SELECT anew FROM unnest($3::text[], $4::text[], $6::bool[]) AS n (stage, claimer, anew)
		     WHERE n.stage = excluded.stage AND n.claimer = excluded.claimer) 
		      OR v.until <= $7 THEN 0 ELSE least(v.agreed, 1000000000) END`),
		t.Number(), now.Add(voterKept),
		records.Column(all, func(w *voter) string { return w.stage }),
		records.Column(all, func(w *voter) string { return w.claimer }),
		records.Column(all, func(w *voter) int32 { return int32(v[*w].times) }),
		records.Column(all, func(w *voter) bool { return v[*w].anew }), now)
}
