//go:build linux || darwin

package devpg

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewestFirstComparesNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"/Applications/Postgres.app/Contents/Versions/18/bin",
		"/opt/homebrew/opt/postgresql@17/bin",
		"/usr/libexec/postgresql16",
		"/usr/pgsql-15/bin",
		"/usr/lib/postgresql/10/bin",
		"/usr/lib/postgresql/9.6/bin",
		"/Applications/Postgres.app/Contents/Versions/latest/bin",
	}, newestFirst([]string{
		"/usr/lib/postgresql/9.6/bin",
		"/usr/lib/postgresql/10/bin",
		"/Applications/Postgres.app/Contents/Versions/latest/bin",
		"/usr/pgsql-15/bin",
		"/opt/homebrew/opt/postgresql@17/bin",
		"/usr/libexec/postgresql16",
		"/Applications/Postgres.app/Contents/Versions/18/bin",
	}))
}

// fakeInstall creates a folder with programs that only print their version.
func fakeInstall(t *testing.T, major string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + major + ".4 (Debian)'\n"
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}

func TestFindInstallPrefersTheClustersVersion(t *testing.T) {
	newer, older := fakeInstall(t, "98"), fakeInstall(t, "97")
	t.Setenv("PATH", "relative"+":"+newer+":"+older)
	c := child{ctx: t.Context(), dir: layout(t.TempDir())}

	for want, dir := range map[int]string{0: newer, 98: newer, 97: older, 3: newer} {
		t.Run(fmt.Sprintf("version %d", want), func(t *testing.T) {
			pg, err := c.findInstall("", want)
			require.NoError(t, err)
			require.Equal(t, dir, pg.dir, "for a cluster of version %d", want)
		})
	}
	pg, err := c.findInstall(older, 98)
	require.NoError(t, err)
	require.Equal(t, install{older, 97}, pg, "a folder that was named is the only one")
}

func TestDefaultDataDir(t *testing.T) {
	if os.Geteuid() == 0 {
		dir, err := DefaultDataDir()
		require.NoError(t, err)
		require.Equal(t, "/var/lib/asyncflow", dir)
		return
	}
	t.Setenv("HOME", "/home/ada")
	for xdg, want := range map[string]string{"": "/home/ada/.local/share/asyncflow",
		"/data": "/data/asyncflow", "not/absolute": "/home/ada/.local/share/asyncflow"} {
		t.Run(fmt.Sprintf("%q", xdg), func(t *testing.T) {
			t.Setenv("XDG_DATA_HOME", xdg)
			dir, err := DefaultDataDir()
			require.NoError(t, err)
			require.Equal(t, want, dir)
		})
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	require.Equal(t, "", lastLines(nil))
	require.Equal(t, "2 | 3 | 4 | 5 | 6 | 7 | 8 | 9",
		lastLines([]byte("1\n2\n3\n4\n5\n6\n7\n8\n 9\n")))
}
