package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

const (
	// leaseOfLinger bounds how long a look at a lease waits for others.
	leaseOfLinger = 500 * time.Microsecond
	// leaseOfPatience bounds a look against a database that doesn't answer.
	leaseOfPatience = 10 * time.Second
)

// leasesSQL reads the leases of some tasks of one roll.
const leasesSQL = `
SELECT l.id, l.seq, l.stage, l.attempt, l.leased_at, l.until, {options}
FROM {lease} l JOIN {task} t ON t.id = l.id WHERE l.id = ANY ($1)`

// leaseOfItem is a question for a lease.
type leaseOfItem struct {
	id     asyncflow.TaskID
	seq    int
	answer chan<- leaseAnswer // takes one without blocking
}

type leaseAnswer struct {
	lease  asyncflow.Lease
	stands bool
	err    error
}

// LeaseOf returns the lease of a task's attempt, without its context, if it stands. It is
// read together with others that are asked for at the time.
func (s *Store) LeaseOf(ctx context.Context, t *Type, id asyncflow.TaskID, seq int) (l asyncflow.Lease, stands bool, err error) {
	answer := make(chan leaseAnswer, 1)
	s.leasesOf.add(t.Key(), leaseOfItem{id, seq, answer})
	select {
	case a := <-answer:
		return a.lease, a.stands, wrap(a.err, "LeaseOf(%s, %d)", id, seq)
	case <-ctx.Done():
		return l, false, wrap(ctx.Err(), "LeaseOf(%s, %d)", id, seq)
	}
}

// readLeases answers a batch of questions for leases of one type.
func (s *Store) readLeases(ctx context.Context, key TypeKey, items []leaseOfItem) {
	ctx, cancel := context.WithTimeout(ctx, leaseOfPatience)
	defer cancel()
	leases := map[leaseKey]asyncflow.Lease{}
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err == nil {
		err = s.following(ctx, t, func(t *Type) error { return s.hot(key).Send(ctx, leasesBatch(t, items, leases)) })
	}
	for _, item := range items {
		l, stands := leases[leaseKey{item.id.Number, int16(item.seq)}]
		item.answer <- leaseAnswer{l, stands && err == nil, err}
	}
}

// leasesBatch asks for the leases of some tasks, by the rolls that their ids name. A roll
// that was dropped has none.
func leasesBatch(t *Type, items []leaseOfItem, into map[leaseKey]asyncflow.Lease) *pgx.Batch {
	parts := map[int][]int64{}
	for _, item := range items {
		position := item.id.Position()
		if position < t.First || position > t.End {
			continue
		}
		parts[position] = append(parts[position], item.id.Number)
	}
	b := &pgx.Batch{}
	for position, ids := range parts {
		b.Queue(t.tables.at(position, leasesSQL), ids).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				l := asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name}}
				var options []byte
				if err := rows.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.LeasedAt, &l.Until, &options); err != nil {
					return err
				}
				if options != nil {
					if err := json.Unmarshal(options, &l.Options); err != nil {
						return err
					}
				}
				into[leaseKey{l.ID.Number, int16(l.Seq)}] = l
			}
			return rows.Err()
		})
	}
	return b
}
