package store_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// The examples of docs/sql-submit.md work for a role with the rights that the page grants. An
// example is skipped where its client isn't installed.
func TestSQLSubmitExamples(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	receipts := twoStages()
	receipts.Name = "receipts"
	_, _, err := b.PutTaskType(t.Context(), tenant, receipts)
	require.NoError(t, err)
	b.app() // makes the role
	b.exec(`ALTER ROLE ` + appRole(t, b) + ` LOGIN PASSWORD 'secret';
		CREATE TABLE public.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		    item text NOT NULL);
		GRANT SELECT, INSERT ON public.orders TO ` + appRole(t, b))
	address, err := url.Parse(b.url)
	require.NoError(t, err)
	var role string
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT current_database() || '_app'`).Scan(&role))
	address.User = url.UserPassword(role, "secret")

	page, err := os.ReadFile("../docs/sql-submit.md")
	require.NoError(t, err)
	for i, c := range []struct {
		language, file string
		programs       []string // the first one for which the arguments of installed succeed
		installed, run []string
	}{
		{"sql", "receipt.sql", []string{"psql"}, []string{"--version"},
			[]string{"-X", "-v", "ON_ERROR_STOP=1", "-f"}},
		{"go", "main.go", []string{"go"}, []string{"version"}, []string{"run"}},
		// the distribution's packages are for its own Python
		{"python", "receipt.py", []string{"python3", "/usr/bin/python3"},
			[]string{"-c", "import psycopg"}, nil},
		{"js", "receipt.js", []string{"node"}, []string{"-e", "require('pg')"}, nil},
	} {
		t.Run(c.language, func(t *testing.T) {
			works := func(program string) bool {
				return exec.CommandContext(t.Context(), program, c.installed...).Run() == nil
			}
			found := slices.IndexFunc(c.programs, works)
			if found < 0 {
				t.Skipf("not installed: %v %v", c.programs, c.installed)
			}
			blocks := regexp.MustCompile("(?s)```"+c.language+"\n(.*?)```").FindAllSubmatch(page,
				-1)
			require.Len(t, blocks, 1)
			file := filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.WriteFile(file, blocks[0][1], 0o600))
			args := append(slices.Clip(c.run), file)
			if c.language == "sql" {
				args = append(args, address.String())
			}
			cmd := exec.CommandContext(t.Context(), c.programs[found], args...)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+address.String())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)

			tasks, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "receipts", Limit: 1})
			require.NoError(t, err)
			require.Len(t, tasks, 1)
			assert.Contains(t, string(out), tasks[0].ID.String(), "of example %d", i)
			task := b.task(tasks[0].ID)
			var order string
			require.NoError(t, b.db.QueryRow(t.Context(),
				`SELECT max(id)::text FROM orders`).Scan(&order))
			assert.Equal(t, "order-"+order, task.Options.Key)
			assert.JSONEq(t, `{"order": `+order+`}`, string(task.Context))
		})
	}
}
