package store_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// examine returns the findings that aren't good, as lines "level check tenant: text".
func (b *bundle) examine(certificate store.Certificate) []string {
	b.t.Helper()
	all, err := store.Examine(b.t.Context(), b.url, "", false, certificate)
	require.NoError(b.t, err)
	var lines []string
	for _, f := range all {
		if f.Level == store.FindingOK {
			assert.Empty(b.t, f.Do)
			continue
		}
		assert.NotEmpty(b.t, f.Do, f.Text)
		about := strings.TrimSpace(string(f.Level) + " " + f.Check + " " + f.Tenant)
		lines = append(lines, about+": "+f.Text)
	}
	return lines
}

func unread(context.Context, string) (time.Time, error) {
	return time.Time{}, errors.New("nobody answers")
}

// roleful makes the node's row say that it does everything.
func (b *bundle) roleful() {
	b.t.Helper()
	eventually(b.t, "the node's row", func() bool {
		tag, err := b.db.Exec(b.t.Context(),
			`UPDATE asyncflow.nodes SET roles = 'api,dispatcher,governance'`)
		return err == nil && tag.RowsAffected() == 1
	})
}

// Nothing is said of a sound installation but what its server is.
func TestExamineASoundInstallation(t *testing.T) {
	b := setup(t)
	b.roleful()
	for _, line := range b.examine(unread) {
		assert.Contains(t, line, " server: ") // fast servers for tests keep little of what they say
	}
}

// What is broken is found: each line here is made by one statement, or by its lack.
func TestExamineABrokenInstallation(t *testing.T) {
	b := setupTwo(t)
	b.roleful()
	b.put(twoStages())
	claimed := twoStages()
	claimed.Name, claimed.Stages[0].Mode = "judged", asyncflow.ModeClaim
	b.put(claimed)
	_, err := b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{ID: endpointID(1),
		Type: "pipe", Stage: "first", URL: "https://worker.example.com/pipe", Weight: 1})
	require.NoError(t, err)
	_, err = b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{ID: endpointID(2),
		Type: "judged", Stage: "second", URL: "https://old.example.com/judged", Weight: 1})
	require.NoError(t, err)
	b.exec(`INSERT INTO tenant_acme.endpoint_secrets (id, endpoint, kind, sealed, created_at, expires_at)
		SELECT id, id, 'hmac', '', now(), now() + interval '2 days'
		FROM tenant_acme.endpoints WHERE type = 'pipe'`)
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('lost', 'api', 'v1', now() - interval '1 h', now() - interval '5 min')`)
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('older', 'api', 'v0', now(), now())`)
	b.exec(`INSERT INTO asyncflow.jobs (name, spec, error, failures, succeeded_at)
		VALUES ('fold', '@every 1s', 'no space', 7, now()), ('roll', '@every 1s', NULL, 0,
		  now() - interval '2 days'), ('erase', 'off', 'old', 1, NULL)
		ON CONFLICT (name) DO UPDATE SET error = excluded.error, failures = excluded.failures,
		  spec = excluded.spec, succeeded_at = excluded.succeeded_at`)
	b.exec(`UPDATE tenant_acme.rolls SET sealed_at = now() WHERE table_set = ''`)
	b.exec(`INSERT INTO tenant_acme.rolls (table_set, position, opened_at, history)
		SELECT table_set, position + 1, now() - interval '20 min', history
		FROM tenant_acme.rolls WHERE table_set = ''`)
	b.exec(`UPDATE asyncflow.tenants SET role = NULL WHERE slug = 'other'`)
	b.exec(`DELETE FROM tenant_other.schema_versions WHERE version_id =
		(SELECT max(version_id) FROM tenant_other.schema_versions)`)

	lines := strings.Join(b.examine(func(_ context.Context, url string) (time.Time, error) {
		if strings.Contains(url, "old.example.com") {
			return time.Now().Add(-time.Hour), nil
		}
		return time.Now().Add(3 * 24 * time.Hour), nil
	}), "\n")
	for _, want := range []string{
		`problem schema: the schema tenant_other is at version \d+ of \d+`,
		`problem roles other: the tenant has no database role`,
		`warning nodes: the node lost was seen 5m\d+s ago and not stopped properly`,
		`note nodes: nodes run different versions: .*v0`,
		`warning jobs: the job fold has failed 7 times in a row: no space`,
		`warning jobs: the job roll last succeeded 48h0m\d+s ago`,
		`warning rolls acme: roll 1 of the shared tables still has tasks to be leased; ` +
			`the next one was opened 20m\d+s ago`,
		`warning endpoints acme: the stage pipe/second has no endpoint that gets deliveries`,
		`warning claimers acme: nobody has ever asked for tasks of the claim stage judged/first`,
		`note secrets acme: the earlier secret of https://worker.example.com/pipe \(pipe/first\) signs`,
		`warning certificates acme: the certificate of https://worker.example.com/pipe ends at 20`,
		`problem certificates acme: the certificate of https://old.example.com/judged ended 1h0m\d+s ago`,
	} {
		assert.Regexp(t, `(?m)^`+want, lines)
	}
	assert.NotContains(t, lines, "pipe/first has no endpoint")
	assert.NotContains(t, lines, "the job erase")
	assert.NotContains(t, lines, "could not be checked")
}

// A tenant with locked tables keeps no other from being looked at.
func TestExamineBesideALockedTenant(t *testing.T) {
	b := setupTwo(t)
	_, _, err := b.PutTaskType(t.Context(), "other", twoStages())
	require.NoError(t, err)
	lockEndpoints(t, b.url, tenant)
	lines := strings.Join(b.examine(unread), "\n")
	assert.Regexp(t, `(?m)^warning endpoints acme: could not be checked: .*lock timeout`, lines)
	assert.Contains(t, lines, "warning endpoints other: the stage pipe/first has no endpoint")
}

// A database that was never migrated gives one finding for each thing that isn't there.
func TestExamineAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, url: pgtest.Database(t, nil)}
	lines := strings.Join(b.examine(unread), "\n")
	assert.Contains(t, lines, "problem schema: the schema asyncflow is at version 0 of ")
	assert.Contains(t, lines, "warning nodes: could not be checked: ")
	_, err := store.Examine(t.Context(), "postgres://nobody@127.0.0.1:1/none", "", false, unread)
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
}

// Each finding's place in the manual is there, and names the check.
func TestPagesOfFindings(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("internal/checkup/examine.go")
	require.NoError(t, err)
	pages := regexp.MustCompile(`\{"([a-z]+)", "([a-z_]+\.md)#([a-z_-]+)"`).
		FindAllStringSubmatch(string(code), -1)
	require.GreaterOrEqual(t, len(pages), 15)
	for _, p := range pages {
		page, err := os.ReadFile("../docs/" + p[2])
		require.NoError(t, err)
		found := false
		for part := range strings.SplitSeq(string(page), "\n## ") {
			heading, body, _ := strings.Cut(part, "\n")
			title := strings.ToLower(strings.Trim(heading, "` "))
			if strings.ReplaceAll(title, " ", "-") == p[3] {
				found = true
				named := `Checks? [^.]*\x60` + p[1] + `\x60[^.]* of\s+\[\x60asyncflow doctor\x60`
				assert.Regexp(t, named, body, "%s#%s doesn't name its check", p[2], p[3])
			}
		}
		assert.True(t, found, "%s has no title %q", p[2], p[3])
	}
}
