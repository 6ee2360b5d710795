package store_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// The examples of docs/sql-submit.md do what they say, connected as a role that has what the page
// grants. One whose client isn't installed is skipped.
func TestSQLSubmitExamples(t *testing.T) {
	b := setup(t)
	receipts := twoStages()
	receipts.Name = "receipts"
	_, _, err := b.PutTaskType(t.Context(), tenant, receipts)
	require.NoError(t, err)
	b.app() // makes the role
	b.exec(`ALTER ROLE ` + appRole(t, b) + ` LOGIN PASSWORD 'secret';
		CREATE TABLE public.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);
		GRANT SELECT, INSERT ON public.orders TO ` + appRole(t, b))
	address, err := url.Parse(b.url)
	require.NoError(t, err)
	var role string
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT current_database() || '_app'`).Scan(&role))
	address.User = url.UserPassword(role, "secret")

	page, err := os.ReadFile("../docs/sql-submit.md")
	require.NoError(t, err)
	for i, c := range []struct {
		language, file string
		installed, run []string
	}{
		{"sql", "receipt.sql", []string{"psql", "--version"}, []string{"psql", "-X", "-v", "ON_ERROR_STOP=1", "-f"}},
		{"go", "main.go", nil, []string{"go", "run"}},
		{"python", "receipt.py", []string{"python3", "-c", "import psycopg"}, []string{"python3"}},
		{"js", "receipt.js", []string{"node", "-e", "require('pg')"}, []string{"node"}},
	} {
		t.Run(c.language, func(t *testing.T) {
			if c.installed != nil {
				if err := exec.CommandContext(t.Context(), c.installed[0], c.installed[1:]...).Run(); err != nil {
					t.Skipf("%v: %v", c.installed, err)
				}
			}
			blocks := regexp.MustCompile("(?s)```"+c.language+"\n(.*?)```").FindAllSubmatch(page, -1)
			require.Len(t, blocks, 1)
			file := filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.WriteFile(file, blocks[0][1], 0o600))
			args := append(c.run[1:len(c.run):len(c.run)], file)
			if c.language == "sql" {
				args = append(args, address.String())
			}
			cmd := exec.CommandContext(t.Context(), c.run[0], args...)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+address.String())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)

			tasks, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "receipts", Limit: 1})
			require.NoError(t, err)
			require.Len(t, tasks, 1)
			assert.Contains(t, string(out), tasks[0].ID.String(), "of example %d", i)
			task := b.task(tasks[0].ID)
			var order string
			require.NoError(t, b.db.QueryRow(t.Context(), `SELECT max(id)::text FROM orders`).Scan(&order))
			assert.Equal(t, "order-"+order, task.Options.Key)
			assert.JSONEq(t, `{"order": `+order+`}`, string(task.Context))
		})
	}
}
