package tasks

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// shownNotifications is how many of a task's notifications it shows.
const shownNotifications = 10

// tellNotifications reads where the end of a task is told, and which tasks told its ends, the
// latest first.
func (s *Tasks) tellNotifications(ctx context.Context, tenant string, task *Task) error {
	t, err := s.core.TypeOf(ctx, tenant, task.ID)
	if err != nil {
		return err
	}
	task.OnFinal = t.TellsAny(&task.Options)
	if task.OnFinal == nil && task.Options.Erased == nil || task.seq == 0 { // it never ended
		return nil
	}
	rows, _ := s.core.DB(tenant).Query(ctx, t.SQL(0, `SELECT y.name, n.task FROM {notifications} n
		JOIN {types} y ON y.number = n.target WHERE n.type = $1 AND n.id = $2
		ORDER BY n.seq DESC LIMIT $3`), t.Number(), task.ID.Number, shownNotifications)
	task.Notifications, err = pgx.CollectRows(rows, pgx.RowToStructByPos[asyncflow.TaskID])
	return err
}
