package settings

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// EpisodesKept is how long episodes that are over are kept.
const EpisodesKept = 30 * 24 * time.Hour

// maxEpisodes is the most episodes in a list.
const maxEpisodes = 200

const episodeColumns = `SELECT id::text, alert, subject, since, value, bound, below, resolved_at,
	coalesce(resolved_value, 0), coalesce(firing_task, ''), coalesce(resolved_task, ''),
	coalesce(waits_for, ''), detail FROM `

// Episodes returns a tenant's open episodes and the episodes resolved within the last 30 days,
// newest first, at most 200.
func (s *alerts) Episodes(ctx context.Context, tenant string) ([]asyncflow.Episode, error) {
	all, err := readEpisodes(ctx, s.core.DB(tenant), episodeColumns+episodesOf(tenant)+`
		WHERE resolved_at IS NULL OR resolved_at > $1
		ORDER BY resolved_at IS NOT NULL, since DESC, id DESC LIMIT $2`,
		s.core.Clock.Now().Add(-EpisodesKept), maxEpisodes)
	return all, postgres.Wrap(err, "Episodes(%q)", tenant)
}

// FiringEpisodes returns a tenant's open episodes, newest first, at most 200, and reports whether
// it has alerts at all.
func (s *alerts) FiringEpisodes(
	ctx context.Context, tenant string,
) (firing []asyncflow.Episode, enabled bool, err error) {
	firing, err = readEpisodes(ctx, s.core.DB(tenant), episodeColumns+episodesOf(tenant)+`
		WHERE resolved_at IS NULL ORDER BY since DESC, id DESC LIMIT $1`, maxEpisodes)
	if err != nil {
		return nil, false, postgres.Wrap(err, "FiringEpisodes(%q)", tenant)
	}
	err = s.core.DB(tenant).QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM `+alertsOf(tenant)+`)`).Scan(&enabled)
	return firing, enabled, postgres.Wrap(err, "FiringEpisodes(%q)", tenant)
}

// EpisodesToNotify returns the episodes with a notice that was not sent yet, oldest first.
func (s *alerts) EpisodesToNotify(
	ctx context.Context, tenant string,
) ([]asyncflow.Episode, error) {
	all, err := readEpisodes(ctx, s.core.DB(tenant), episodeColumns+episodesOf(tenant)+`
		WHERE firing_task IS NULL OR resolved_task IS NULL AND resolved_at IS NOT NULL
		ORDER BY since, id`)
	return all, postgres.Wrap(err, "EpisodesToNotify(%q)", tenant)
}

func readEpisodes(
	ctx context.Context, q postgres.Querier, sql string, args ...any,
) ([]asyncflow.Episode, error) {
	rows, _ := q.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e asyncflow.Episode, err error) {
		var below, resolved *time.Time
		var detail []byte
		err = row.Scan(&e.ID, &e.Alert, &e.Subject, &e.Since, &e.Value, &e.Limit, &below, &resolved,
			&e.ResolvedValue, &e.FiringTask, &e.ResolvedTask, &e.WaitsFor, &detail)
		e.Below = postgres.OrZero(below)
		e.Resolved = postgres.OrZero(resolved)
		if err == nil && detail != nil {
			err = json.Unmarshal(detail, &e.Detail)
		}
		return e, err
	})
}

// readingAge is the age above which readings are ignored: their node was delayed.
const readingAge = 30 * time.Second

// ObserveAlerts updates a tenant's episodes with the readings of a time: it begins new ones and
// continues or resolves the open ones. It locks the row of the tenant's alerts meanwhile, so
// that one node at a time does this. It returns how many episodes were open before or are now.
func (s *alerts) ObserveAlerts(
	ctx context.Context, tenant string, readings []asyncflow.AlertReading, at time.Time,
) (episodes int, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		var endpoint string
		var now time.Time
		err := tx.QueryRow(ctx, `SELECT endpoint::text, clock_timestamp()
			FROM `+alertsOf(tenant)+` FOR UPDATE`).Scan(&endpoint, &now)
		if err != nil || now.Sub(at) > readingAge {
			return err
		}
		open, err := readEpisodes(ctx, tx,
			episodeColumns+episodesOf(tenant)+` WHERE resolved_at IS NULL`)
		if err != nil {
			return err
		}
		begun, changed := asyncflow.FollowEpisodes(open, readings, at)
		episodes = len(open) + len(begun)
		b := &pgx.Batch{}
		for _, e := range changed {
			b.Queue(`UPDATE `+episodesOf(tenant)+`
				SET below = $2, resolved_at = $3, resolved_value = $4
				WHERE id = $1::uuid`,
				e.ID, postgres.OrNull(e.Below), postgres.OrNull(e.Resolved),
				postgres.OrNull(e.ResolvedValue))
		}
		for _, r := range begun {
			if err := queueEpisode(b, tenant, endpoint, r, at); err != nil {
				return err
			}
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if errors.Is(err, pgx.ErrNoRows) { // the alerts were deleted meanwhile
		return 0, nil
	}
	return episodes, postgres.Wrap(err, "ObserveAlerts(%q)", tenant)
}

// queueEpisode adds the insert of an episode that a reading begins to a batch.
func queueEpisode(
	b *pgx.Batch, tenant, endpoint string, r asyncflow.AlertReading, at time.Time,
) error {
	var detail *string
	if r.Detail != nil {
		doc, err := json.Marshal(r.Detail)
		if err != nil {
			return err
		}
		text := string(doc)
		detail = &text
	}
	b.Queue(`INSERT INTO `+episodesOf(tenant)+` (id, endpoint, alert, subject, since, value, bound,
		  waits_for, detail)
		VALUES ($1::uuid, $2::uuid, $3, $4, $5, $6, $7, nullif($8, ''), $9::text::json)`,
		uuid.Must(uuid.NewV7()).String(), endpoint, string(r.Alert), r.Subject, at, r.Value,
		r.Limit, string(r.WaitsFor), detail)
	return nil
}

// BeginningAlerts returns the readings that would begin an episode. It reads the open episodes only
// if a reading is over its limit.
func (s *alerts) BeginningAlerts(
	ctx context.Context, tenant string, readings []asyncflow.AlertReading, at time.Time,
) ([]asyncflow.AlertReading, error) {
	if begun, _ := asyncflow.FollowEpisodes(nil, readings, at); len(begun) == 0 {
		return nil, nil
	}
	open, err := readEpisodes(ctx, s.core.DB(tenant),
		episodeColumns+episodesOf(tenant)+` WHERE resolved_at IS NULL`)
	begun, _ := asyncflow.FollowEpisodes(open, readings, at)
	return begun, postgres.Wrap(err, "BeginningAlerts(%q)", tenant)
}

// DryRunAlerts returns how many episodes readings would begin and how many they would resolve.
func (s *alerts) DryRunAlerts(
	ctx context.Context, tenant string, readings []asyncflow.AlertReading, at time.Time,
) (begun, over int, err error) {
	open, err := readEpisodes(ctx, s.core.DB(tenant),
		episodeColumns+episodesOf(tenant)+` WHERE resolved_at IS NULL`)
	fresh, changed := asyncflow.FollowEpisodes(open, readings, at)
	for _, e := range changed {
		if !e.Resolved.IsZero() {
			over++
		}
	}
	return len(fresh), over, postgres.Wrap(err, "DryRunAlerts(%q)", tenant)
}

// RecordNotice records the task that sends the notice of an episode.
func (s *alerts) RecordNotice(
	ctx context.Context, tenant, id string, state asyncflow.AlertState, task asyncflow.TaskID,
) error {
	column := "firing_task"
	if state == asyncflow.AlertResolved {
		column = "resolved_task"
	}
	_, err := s.core.DB(tenant).Exec(ctx,
		`UPDATE `+episodesOf(tenant)+` SET `+column+` = $2 WHERE id = $1::uuid`, id, task.String())
	return postgres.Wrap(err, "RecordNotice(%q, %s)", tenant, id)
}

// ForgetEpisodes deletes a tenant's episodes that were resolved more than 30 days ago, and
// returns how many it deleted.
func (s *alerts) ForgetEpisodes(ctx context.Context, tenant string) (int, error) {
	tag, err := s.core.DB(tenant).Exec(ctx,
		`DELETE FROM `+episodesOf(tenant)+` WHERE resolved_at < $1 AND resolved_task IS NOT NULL`,
		s.core.Clock.Now().Add(-EpisodesKept))
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetEpisodes(%q)", tenant)
}

// DryRunForgetEpisodes counts the episodes that ForgetEpisodes would delete.
func (s *alerts) DryRunForgetEpisodes(ctx context.Context, tenant string) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(tenant),
		`SELECT count(*) FROM `+episodesOf(tenant)+`
		WHERE resolved_at < $1 AND resolved_task IS NOT NULL`,
		s.core.Clock.Now().Add(-EpisodesKept))
}
