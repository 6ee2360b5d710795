//go:build linux || darwin

package pgfetch

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// tarOf returns a tar of entries; a file's content is its name.
func tarOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		h.Mode = max(h.Mode, 0o600)
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		require.NoError(t, w.WriteHeader(&h))
		if h.Size == int64(len(h.Name)) {
			_, err := w.Write([]byte(h.Name))
			require.NoError(t, err)
		}
	}
	return out.Bytes() // its end is missing if a header promises more than there is
}

func file(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}

func TestUnpackStaysInItsFolder(t *testing.T) {
	t.Parallel()
	folder := tar.Header{Name: "native/same", Typeflag: tar.TypeDir}
	many := slices.Repeat([]tar.Header{folder}, maxEntries+1)
	for name, c := range map[string]struct {
		says    string
		entries []tar.Header
	}{
		"a path above":     {"leads out", []tar.Header{file("native/../../outside")}},
		"an absolute path": {"leads out", []tar.Header{file("native//outside")}},
		"a link above": {"out of its folder",
			[]tar.Header{symlink("native/lib", "../../outside")}},
		"an absolute link": {"out of its folder", []tar.Header{symlink("native/lib", "/etc")}},
		"a link to a link": {"out of its folder",
			[]tar.Header{symlink("native/a", "b/.."), symlink("native/b", "../outside")}},
		"a hard link": {"neither file", []tar.Header{{Name: "native/passwd",
			Linkname: "/etc/passwd", Typeflag: tar.TypeLink}}},
		"a device": {"neither file", []tar.Header{{Name: "native/null",
			Typeflag: tar.TypeChar}}},
		"too many": {"10000 files", many},
		"too large": {"512 MB", []tar.Header{{Name: "native/large", Typeflag: tar.TypeReg,
			Size: maxUnpacked + 1}}},
		"shorter than it is": {"EOF", []tar.Header{{Name: "native/short", Typeflag: tar.TypeReg,
			Size: 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := filepath.Join(parent, "in", "native")
			require.NoError(t, os.MkdirAll(dir, 0o755))

			err := unpack(bytes.NewReader(tarOf(t, c.entries...)), dir, "native")

			require.ErrorIs(t, err, errDamaged)
			require.ErrorContains(t, err, c.says)
			for _, outside := range []string{filepath.Join(parent, "outside"),
				filepath.Join(parent, "in", "outside"), "/outside"} {
				require.NoFileExists(t, outside)
			}
		})
	}
	require.ErrorIs(t, unpack(bytes.NewReader(tarOf(t, file("/outside"))), t.TempDir(), ""),
		errDamaged)
}

func TestUnpackMakesAllReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := file("package/native/bin/postgres")
	program.Mode = 0o700
	list := `[{"source":"native/lib/libpq.so.5.17","target":"native/lib/libpq.so"}]`
	content := tarOf(t, program, file("package/native/lib/libpq.so.5.17"),
		file("package/README.md"))

	require.NoError(t, unpack(bytes.NewReader(content), dir, "package/native"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pg-symlinks.json"), []byte(list), 0o644))
	require.NoError(t, makeLinks(dir))

	for name, mode := range map[string]os.FileMode{"bin": 0o755, "bin/postgres": 0o755,
		"lib/libpq.so.5.17": 0o644} {
		t.Run(name, func(t *testing.T) {
			info, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), name)
		})
	}
	target, err := os.Readlink(filepath.Join(dir, "lib", "libpq.so"))
	require.NoError(t, err)
	require.Equal(t, "libpq.so.5.17", target)
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
}

func TestLinksOfAPackageStayInIt(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		`[{"source":"native/../../outside","target":"native/lib"}]`,
		`[{"source":"native/lib","target":"native/../outside"}]`,
		`[{"source":"/etc/passwd","target":"native/lib"}]`,
		`{`,
	} {
		t.Run(list, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pg-symlinks.json"), []byte(list),
				0o644))
			require.ErrorIs(t, makeLinks(dir), errDamaged)
		})
	}
}
