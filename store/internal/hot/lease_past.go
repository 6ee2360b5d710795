package hot

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A stage may ask for documents of its task's past (see asyncflow.Deliver). They are where the task
// is: the input in its row, and outputs in its journal, of the same roll. A live task keeps both.

// inputsSQL reads the contexts of tasks as they were submitted, with their lengths. It leaves out
// contexts that are longer than the limit of their task. $3 holds an empty name for each.
const inputsSQL = `
SELECT u.id, u.name, octet_length(t.context), CASE WHEN octet_length(t.context) <= u.most
  THEN t.context END
FROM unnest($1::bigint[], $3::text[], $4::int[]) AS u (id, name, most), LATERAL (
  SELECT context FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t`

// outputsSQL reads the latest outputs of stages, in the same way. $5 are names of stages to which
// removed ones are mapped, and $6 the names of these. $7 to $9 are what is known of long journals,
// see LatestSQL; it also returns the last row of each journal, and the row with the output.
var outputsSQL = `
SELECT u.id, u.name, coalesce(octet_length(o.output), 0),
  CASE WHEN octet_length(o.output) <= u.most THEN o.output END, top.seq, top.at, coalesce(o.seq, 0)
FROM unnest($1::bigint[], $3::text[], $4::int[], $7::smallint[], $8::timestamptz[], $9::smallint[])
  AS u (id, name, most, o_until, o_at, o_row), ` + topSQL + ` top, ` +
	LatestSQL("output", `j.output IS NOT NULL AND j.outcome IN ('done', 'joined', 'signalled')
    AND (j.stage = u.name OR (u.name, j.stage) IN (SELECT * FROM unnest($5::text[], $6::text[])))`,
		"o") + ` o ON true`

// ReadPast reads the past of leases for which their stages ask, into Past: for as many of the first
// leases as take no more than most bytes of it together, but for at least one. It returns for how
// many; the other leases stay as they are. Leases of other stages get nothing.
//
// It is one round trip, and another one if documents are long: the first one reads only
// documents that may be as long all together.
func (s *Path) ReadPast(
	ctx context.Context, t *config.Type, leases []asyncflow.Lease, most int,
) (n int, err error) {
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return s.core.HotOr(t.Tenant, func(db postgres.TenantDB) error {
			p := newPasts(t, leases, &s.latest)
			if err := p.read(ctx, db, p.all(most)); err != nil {
				return err
			}
			n = p.choose(most)
			if err := p.read(ctx, db, p.missing(n)); err != nil {
				return err
			}
			p.give(n)
			return nil
		})
	})
	if err != nil {
		return 0, postgres.Wrap(err, "ReadPast(%q, %q)", t.Tenant, t.Name)
	}
	return n, nil
}

// PastDocument returns a document of the past of a lease, whatever its length: the latest output of
// a stage or, for "", the input. nil: there is none.
func (s *Path) PastDocument(
	ctx context.Context, t *config.Type, l asyncflow.Lease, name string,
) (doc []byte, err error) {
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		p := &pasts{t: t, latest: &s.latest, docs: map[pastKey]pastRead{}}
		key := pastKey{pastOwner(&l, name), name}
		err := s.core.HotOr(t.Tenant, func(db postgres.TenantDB) error {
			return p.read(ctx, db, map[pastKey]int{key: math.MaxInt32})
		})
		doc = p.docs[key].doc
		return err
	})
	return doc, postgres.Wrap(err, "PastDocument(%q, %s, %q)", t.Tenant, l.ID, name)
}

// pastOwner returns the number of the task with a document of a lease's past. A child gets only its
// own part to work on, as its input: the outputs are its parent's, and a vote gets the input of the
// task that is voted on. What earlier votes in its stage have decided it doesn't know.
func pastOwner(l *asyncflow.Lease, name string) int64 {
	switch c := l.Options.Child; {
	case c == nil, !c.Vote && name == "", c.Vote && name == l.Stage:
		return l.ID.Number
	default:
		return c.Parent
	}
}

// pastKey names a document: the output of a stage of a task or, without a name, its input.
type pastKey struct {
	id   int64
	name string
}

// pastRead is what was read of a document.
type pastRead struct {
	bytes int
	doc   []byte // nil: it was longer than asked for
}

// pasts are the documents of the past of some leases.
type pasts struct {
	t      *config.Type
	leases []asyncflow.Lease
	latest *latestRows
	docs   map[pastKey]pastRead
	inline []map[string]bool // by lease: the documents that are part of its delivery
}

// newPasts knows what needs no read: before its first journal row, a task's context is its input,
// and there are no outputs.
func newPasts(t *config.Type, leases []asyncflow.Lease, known *latestRows) *pasts {
	p := &pasts{t: t, leases: leases, latest: known, docs: map[pastKey]pastRead{}}
	for i := range leases {
		l := &leases[i]
		own := l.Seq == 1 && len(l.Context) > 0
		for _, name := range namesFor(t, l) {
			key := pastKey{pastOwner(l, name), name}
			switch {
			case !own || key.id != l.ID.Number:
			case name == "":
				p.docs[key] = pastRead{len(l.Context), l.Context}
			default:
				p.docs[key] = pastRead{}
			}
		}
	}
	return p
}

// namesFor returns the names of the documents in the delivery of a lease.
func namesFor(t *config.Type, l *asyncflow.Lease) []string {
	if rule := t.Delivers(l.Stage); rule != nil {
		return rule.Names()
	}
	return nil
}

// all returns the documents to be read first, each up to a length with which all together take no
// more than most bytes.
func (p *pasts) all(most int) map[pastKey]int {
	wanted := map[pastKey]int{}
	for i := range p.leases {
		l := &p.leases[i]
		for _, name := range namesFor(p.t, l) {
			key := pastKey{pastOwner(l, name), name}
			if _, known := p.docs[key]; !known {
				wanted[key] = 0
			}
		}
	}
	for key := range wanted {
		wanted[key] = most / len(wanted)
	}
	return wanted
}

// choose decides which documents are part of deliveries. It returns how many of the leases may get
// them.
func (p *pasts) choose(most int) (n int) {
	sum := 0
	for i := range p.leases {
		l := &p.leases[i]
		var lengths []int
		names := namesFor(p.t, l)
		for _, name := range names {
			lengths = append(lengths, p.docs[pastKey{pastOwner(l, name), name}].bytes)
		}
		longest := asyncflow.LongestInline(lengths, p.t.MaxDeliverBytes)
		chosen := map[string]bool{}
		for k, name := range names {
			if lengths[k] > 0 && lengths[k] <= longest {
				chosen[name] = true
				sum += lengths[k]
			}
		}
		if i > 0 && sum > most {
			break
		}
		p.inline = append(p.inline, chosen)
	}
	return len(p.inline)
}

// missing returns the documents that are still to be read for the deliveries of the first n leases.
func (p *pasts) missing(n int) map[pastKey]int {
	wanted := map[pastKey]int{}
	for i := range n {
		for name := range p.inline[i] {
			key := pastKey{pastOwner(&p.leases[i], name), name}
			if read := p.docs[key]; read.doc == nil {
				wanted[key] = read.bytes
			}
		}
	}
	return wanted
}

// give gives the first n leases what was read.
func (p *pasts) give(n int) {
	for i := range n {
		l := &p.leases[i]
		l.Past = nil
		for _, name := range namesFor(p.t, l) {
			read := p.docs[pastKey{pastOwner(l, name), name}]
			doc := asyncflow.PastDocument{Stage: name, Bytes: read.bytes}
			if p.inline[i][name] {
				doc.JSON = read.doc
			}
			l.Past = append(l.Past, doc)
		}
	}
}

// pastPart are documents that one statement reads: inputs or outputs of tasks of a roll.
type pastPart struct {
	position int
	outputs  bool
}

// read reads documents, each up to a length.
func (p *pasts) read(ctx context.Context, db postgres.TenantDB, wanted map[pastKey]int) error {
	b := &pgx.Batch{}
	parts := map[pastPart][]pastKey{}
	for key := range wanted {
		part := pastPart{asyncflow.TaskID{Number: key.id}.Position(), key.name != ""}
		parts[part] = append(parts[part], key)
	}
	for part, keys := range parts {
		if p.t.Has(part.position) {
			p.queue(b, part, keys, wanted)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return db.Send(ctx, b)
}

// queue adds a statement to a batch.
func (p *pasts) queue(b *pgx.Batch, part pastPart, keys []pastKey, wanted map[pastKey]int) {
	args := []any{records.Column(keys, func(k *pastKey) int64 { return k.id }), p.t.Number(),
		records.Column(keys, func(k *pastKey) string { return k.name }),
		records.Column(keys, func(k *pastKey) int { return wanted[*k] })}
	if !part.outputs {
		b.Queue(p.t.SQL(part.position, inputsSQL), args...).Query(p.scanInputs)
		return
	}
	var to, from []string
	for removed, stage := range p.t.StageMapping {
		to = append(to, stage)
		from = append(from, removed)
	}
	args = slices.Concat(args, []any{to, from}, p.latest.args(p.kinds(keys)))
	b.Queue(p.t.SQL(part.position, outputsSQL), args...).Query(p.scanOutputs)
}

// kinds returns the kinds of journal rows with outputs.
func (p *pasts) kinds(keys []pastKey) []latestKey {
	kinds := make([]latestKey, len(keys))
	for i, key := range keys {
		kinds[i] = latestKey{p.t.Key(), key.id, outputKind(p.t, key.name)}
	}
	return kinds
}

// scanInputs reads rows of inputsSQL.
func (p *pasts) scanInputs(rows pgx.Rows) error {
	var key pastKey
	var read pastRead
	_, err := pgx.ForEachRow(rows, []any{&key.id, &key.name, &read.bytes, &read.doc}, func() error {
		p.docs[key] = read
		read = pastRead{}
		return nil
	})
	return err
}

// scanOutputs reads rows of outputsSQL, and notes where the outputs were found.
func (p *pasts) scanOutputs(rows pgx.Rows) error {
	var key pastKey
	var read pastRead
	var in latest
	into := []any{&key.id, &key.name, &read.bytes, &read.doc, &in.until, &in.at, &in.row}
	_, err := pgx.ForEachRow(rows, into, func() error {
		p.docs[key] = read
		p.latest.note(latestKey{p.t.Key(), key.id, outputKind(p.t, key.name)}, in)
		read = pastRead{}
		return nil
	})
	return err
}
