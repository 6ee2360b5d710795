//go:build linux || darwin

package devpg

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgfetch"
)

// installGlobs are where packages put the server programs: Debian, Red Hat,
// Alpine, Homebrew on both kinds of Macs, Postgres.app.
var installGlobs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// install is a folder with the server programs, of one major version.
type install struct {
	dir   string
	major int
}

func (i install) program(name string) string { return filepath.Join(i.dir, name) }

// ensureInstall returns the installation for a cluster of the major version have, 0 for a new
// one: an installed one of the right version, or else a fetched one. If neither is available,
// it returns the first installed one, for the caller to refuse.
func (c child) ensureInstall(cfg Config, have int) (install, error) {
	want := have
	if want == 0 {
		want = cfg.Major
	}
	pg, err := c.findInstall(cfg.BinDir, want)
	missing := pg.dir == "" || (err == nil && want != 0 && pg.major != want)
	if missing && have == 0 && want != 0 && !pgfetch.Has(want) {
		return install{}, noPrograms(want, ", nor can that version be fetched")
	}
	if cfg.BinDir != "" || !missing || (want != 0 && !pgfetch.Has(want)) {
		return pg, err
	}
	fetched, fetchErr := c.fetchInstall(cfg, want)
	if fetchErr != nil && pg.dir != "" && have != 0 && cfg.Offline {
		return pg, nil // its version doesn't fit
	}
	return fetched, fetchErr
}

// fetchInstall returns an installation from pgfetch's cache. Unless cfg.Offline, it fills the
// cache first. want is the major version, 0 for the default.
func (c child) fetchInstall(cfg Config, want int) (install, error) {
	fetch := pgfetch.Config{Major: want, Dir: cfg.CacheDir, Progress: cfg.Progress}
	dir := pgfetch.Cached(fetch)
	if dir == "" && cfg.Offline {
		return install{}, noPrograms(want, ", and offline they are not fetched")
	}
	if dir == "" {
		var err error
		if dir, err = pgfetch.Fetch(c.ctx, fetch); err != nil {
			if c.ctx.Err() != nil {
				return install{}, err
			}
			why := strings.ReplaceAll(err.Error(), "\n", "; ")
			return install{}, noPrograms(want, ", and can't be fetched ("+why+")")
		}
	}
	major, err := c.majorVersion(dir)
	if asyncflow.CodeOf(err) == asyncflow.CodeInvalid {
		return install{}, err // about the data directory
	}
	if err != nil {
		why := fmt.Sprintf(", and those that were fetched into %s don't run (%v)", dir, err)
		return install{}, noPrograms(want, why)
	}
	return install{dir, major}, nil
}

// findInstall returns the installation for a cluster of the major version want, 0 for any: the
// first candidate of that version, or else the first that works. It fails if there is no
// installation, or if one doesn't run.
func (c child) findInstall(binDir string, want int) (install, error) {
	dirs := candidates(binDir)
	if len(dirs) == 0 && binDir != "" {
		return install{}, noProgramsIn(binDir)
	}
	if len(dirs) == 0 {
		return install{}, noPrograms(want, "")
	}
	var first install
	var firstErr error
	for i, dir := range dirs {
		major, err := c.majorVersion(dir)
		if err == nil && (want == 0 || major == want) {
			return install{dir, major}, nil
		}
		if i == 0 {
			first, firstErr = install{dir, major}, err
		}
	}
	return first, firstErr
}

// candidates returns the folders with both programs: only binDir if it is given, or else the
// folders in PATH, and then the usual places, newest versions first.
func candidates(binDir string) []string {
	if binDir != "" {
		return slices.DeleteFunc([]string{binDir}, lacksPrograms)
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
	var usual []string
	for _, glob := range installGlobs {
		found, _ := filepath.Glob(glob)
		usual = append(usual, found...)
	}
	return slices.DeleteFunc(append(dirs, newestFirst(usual)...), lacksPrograms)
}

func lacksPrograms(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return true
		}
	}
	return false
}

var versionInPath = regexp.MustCompile(`[@/-](?:postgresql)?(\d+(?:\.\d+)?)(?:/|$)`)

// newestFirst sorts folders by the version number in their path, so that 10
// comes before 9.6.
func newestFirst(dirs []string) []string {
	version := func(dir string) float64 {
		m := versionInPath.FindStringSubmatch(dir)
		if m == nil {
			return 0
		}
		v, _ := strconv.ParseFloat(m[1], 64)
		return v
	}
	slices.SortStableFunc(dirs, func(a, b string) int {
		return cmp.Compare(version(b), version(a))
	})
	return dirs
}

const howToGetPostgres = "install them (Debian, Ubuntu: apt-get install postgresql; " +
	"Fedora: dnf install postgresql-server; macOS: brew install postgresql@17), name their " +
	"folder with --pg-bin, " +
	"set DATABASE_URL and run asyncflow serve, or run docker compose up"

func noProgramsIn(binDir string) error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the Postgres server programs initdb and postgres were not found in %s: %s", binDir,
		howToGetPostgres)
}

// noPrograms is the error about missing programs. want is the major version that is asked of them,
// 0 for any, and why is the reason why they are not fetched.
func noPrograms(want int, why string) error {
	of := ""
	if want != 0 {
		of = fmt.Sprintf(" of version %d", want)
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the Postgres server programs initdb and postgres%s are not installed on this machine%s: "+
			"%s",
		of, why, howToGetPostgres)
}
