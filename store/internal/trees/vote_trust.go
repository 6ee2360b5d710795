package trees

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// voterKept is how long the agreements of a claimer who no longer votes are kept.
const voterKept = 90 * 24 * time.Hour

// trust lets the vote of a claimer who often agreed with other voters decide alone.
func (f *followUp) trust(t *config.Type, all []*records.FanOut) error {
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

// queue writes them down, in one order, so that two transactions don't wait for each other.
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
		  anew)
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
