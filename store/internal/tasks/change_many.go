package tasks

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// prioritize changes the priority of the pending and waiting tasks among some tasks of one roll,
// as Change does for one, and returns how many have it now.
func (st *step) prioritize(ctx context.Context, tx pgx.Tx, ids []int64) (done int, err error) {
	if err := trees.LockFanOuts(ctx, tx, st.t, ids); err != nil {
		return 0, err
	}
	st.now = st.clock() // children may have been made since the step began
	done, st.changed, err = trees.Prioritize(ctx, tx, st.t, ids,
		trees.PriorityChange{Priority: st.o.Priority, Parents: true}, &st.tokens, st.now)
	if err != nil || st.tokens.Empty() {
		return done, err
	}
	b := &pgx.Batch{}
	st.tokens.Queue(b, st.t)
	return done, tx.SendBatch(ctx, b).Close()
}
