package tasks

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// patch changes the priority or the time of the pending and waiting tasks among some tasks of one
// roll, as Change does for one, and returns how many have it now. A task that waits for its
// children has no time of its own, and keeps it.
func (st *step) patch(ctx context.Context, tx pgx.Tx, ids []int64) (done int, err error) {
	p := trees.BulkChange{
		Patch:   asyncflow.Patch{Priority: st.o.Priority, RunAt: st.o.RunAt},
		Parents: st.o.Kind == PrioritizeTasks,
	}
	if p.Parents {
		if err := trees.LockFanOuts(ctx, tx, st.t, ids); err != nil {
			return 0, err
		}
		st.now = st.clock() // children may have been made since the step began
	}
	done, st.changed, err = trees.ChangeAll(ctx, tx, st.t, ids, p, &st.tokens, st.now)
	if err != nil || st.tokens.Empty() {
		return done, err
	}
	b := &pgx.Batch{}
	st.tokens.Queue(b, st.t)
	return done, tx.SendBatch(ctx, b).Close()
}
