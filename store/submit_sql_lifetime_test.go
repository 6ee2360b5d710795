package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A task that is submitted by SQL gets the lifetime of its type, or its own, as one that is
// submitted by the API.
func TestSQLLifetime(t *testing.T) { eachSet(t, sqlLifetime) }

func sqlLifetime(t *testing.T, b *bundle) {
	spec := patient()
	spec.StartBy = asyncflow.DeadlineAfter(90 * time.Minute)
	spec.EndBy = asyncflow.DeadlineAfter(7 * 24 * time.Hour)
	b.put(spec)
	app := b.app()
	due := b.Clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
	run := `, run_at => '` + due.Format(time.RFC3339) + `'`
	for args, same := range map[string]asyncflow.NewTask{
		``:                   {},
		`, start_by => NULL`: {},
		`, start_by => '30m', end_by => 'none'`: {StartBy: deadline(t, "30m"),
			EndBy: deadline(t, "none")},
		`, end_by => '2090-01-01T00:00:00.5+01:00'`: {
			EndBy: deadline(t, "2090-01-01T00:00:00.5+01:00")},
		`, start_by => 'none', end_by => 'none'`: {StartBy: deadline(t, "none"),
			EndBy: deadline(t, "none")},
	} {
		same.Type = "pipe"
		same.Context = []byte(`1`)
		same.RunAt = due
		want := b.submit(same)[0].ID
		id, err := b.bySQL(app, `'pipe', '1'`+run+args)
		require.NoError(t, err, args)
		assert.Equal(t, b.task(want).Options.Lifetime, b.task(id).Options.Lifetime, args)
		var differ bool
		require.NoError(t, b.db.QueryRow(t.Context(), b.at(0, `SELECT
			count(DISTINCT (l.expires_at, l.start, l.id IS NULL)) > 1
			FROM unnest($1::bigint[]) AS u (id) LEFT JOIN {lifetimes} l ON l.id = u.id`),
			[]int64{want.Number, id.Number}).Scan(&differ))
		assert.False(t, differ, args)
	}
	at := b.Clock.Now()
	id, err := b.bySQL(app, `'pipe', '1'`)
	require.NoError(t, err)
	assert.WithinDuration(t, at.Add(90*time.Minute), b.task(id).Options.Lifetime.StartBy,
		time.Minute)
	b.lapse(id, "start_by")
	b.expireTasks()
	b.expired(id, "begun")
	waits, err := b.bySQL(app, `'pipe', '1', depends_on => '[{"type": "pipe", "key": "never"}]'`)
	require.NoError(t, err)
	b.lapse(waits, "start_by")
	b.expireTasks()
	b.expired(waits, "begun")
}

// The start_by of the first stage holds for tasks that are submitted by SQL, too.
func TestSQLStageLifetime(t *testing.T) {
	b := setup(t)
	spec := patient()
	spec.Stages[0].StartBy = asyncflow.NewDuration(time.Hour)
	b.put(spec)
	id, err := b.bySQL(b.app(), `'pipe', '1'`)
	require.NoError(t, err)
	require.Nil(t, b.task(id).Options.Lifetime)
	require.Equal(t, 1, b.lifetimes())
	b.late("2 hours")
	b.expireTasks()
	b.expired(id, "begun")
}

// Tasks without a lifetime get no row.
func TestSQLWithoutLifetime(t *testing.T) {
	b := setup(t)
	b.put(patient())
	_, err := b.bySQL(b.app(), `'pipe', '1'`)
	require.NoError(t, err)
	require.Zero(t, b.lifetimes())
}

// What the API refuses, the function refuses in the same words.
func TestSQLRefusesLifetimes(t *testing.T) {
	b := setup(t)
	b.put(patient())
	app := b.app()
	due := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, args := range map[string]string{
		"0s":                   ``,
		"-1h":                  ``,
		"87601h":               ``,
		"soon":                 ``,
		"2026-02-31T12:00:00Z": ``,
		"3000-01-01T00:00:00Z": ``,
		"2019-01-01T00:00:00Z": `, run_at => '2020-01-01T00:00:00Z'`,
	} {
		_, err := b.bySQL(app, `'pipe', '1', end_by => '`+text+`'`+args)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, text)
		assert.Equal(t, []string{pgerrcode.InvalidParameterValue, "end_by", "invalid_argument"},
			[]string{refused.Code, refused.ColumnName, refused.Detail}, text)
		var d asyncflow.Deadline
		want := d.UnmarshalText([]byte(text))
		if want == nil {
			task := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`), EndBy: d}
			if args != "" {
				task.RunAt = due
			}
			want = task.Validate(b.Clock.Now(), 1000)
		}
		assert.Contains(t, want.Error(), refused.Message[len("end_by "):], text)
	}
	require.Zero(t, b.lifetimes())
}

func deadline(t *testing.T, text string) (d asyncflow.Deadline) {
	t.Helper()
	require.NoError(t, d.UnmarshalText([]byte(text)))
	return d
}
