//go:build linux || darwin

package pgfetch

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	maxUnpacked = 512 << 20 // bytes; an archive of the programs takes 60 to 200 MB
	maxEntries  = 10_000    // files, folders and links; there are about 1,000 in one
)

// unpack writes the files, folders and links below prefix in a tar into dir. An entry that
// leads out of dir, is of another kind, or exceeds a limit is an error.
func unpack(r io.Reader, dir, prefix string) error {
	root, err := os.OpenRoot(dir) // no path or link leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	left := int64(maxUnpacked)
	for range maxEntries {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		name, inside := below(prefix, h.Name)
		if !inside {
			continue
		}
		if left -= max(h.Size, 0); left < 0 {
			return fmt.Errorf("%w: it has more than %d MB", errDamaged, maxUnpacked>>20)
		}
		if err := unpackEntry(root, archive, h, name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it has more than %d files", errDamaged, maxEntries)
}

// below returns a name relative to prefix, and whether it is below it.
func below(prefix, name string) (string, bool) {
	name = strings.TrimPrefix(name, "./")
	if prefix == "" {
		return path.Clean(name), name != ""
	}
	rest, ok := strings.CutPrefix(name, prefix+"/")
	return path.Clean(rest), ok && rest != ""
}

func unpackEntry(root *os.Root, content io.Reader, h *tar.Header, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: %q leads out of its folder", errDamaged, h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return mkdirAll(root, name)
	case tar.TypeReg:
		return writeFile(root, content, h, name)
	case tar.TypeSymlink:
		return link(root, name, h.Linkname)
	default:
		return fmt.Errorf("%w: %q is neither file, folder nor link", errDamaged, h.Name)
	}
}

// writeFile writes a file that everyone may read, and may run if it is executable.
func writeFile(root *os.Root, content io.Reader, h *tar.Header, name string) error {
	if err := mkdirAll(root, path.Dir(name)); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("%q: %w", h.Name, err)
	}
	_, err = io.Copy(file, content)
	if isDamage(err) {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return errors.Join(err, file.Chmod(mode), file.Close()) // perhaps the umask took bits
}

// isDamage reports whether an error is that of the archive and not of the disk.
func isDamage(err error) bool {
	var system syscall.Errno
	return err != nil && !errors.As(err, &system)
}

// mkdirAll creates a folder and its missing parents, which everyone may enter.
func mkdirAll(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if err := mkdirAll(root, path.Dir(name)); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return root.Chmod(name, 0o755)
}

// link creates a symbolic link, unless it would lead out of the root.
func link(root *os.Root, name, target string) error {
	if path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		return fmt.Errorf("%w: the link %q leads to %q, out of its folder", errDamaged, name,
			target)
	}
	if err := mkdirAll(root, path.Dir(name)); err != nil {
		return err
	}
	return root.Symlink(target, name)
}

// makeLinks creates the symbolic links that an npm package lists, since npm packages can't
// contain any. Each leads to a file in a folder of the package. It is no error if there is no
// list.
func makeLinks(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	text, err := root.ReadFile("pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// the target is the link, the source what it leads to
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("%w: its list of links: %w", errDamaged, err)
	}
	for _, l := range links[:min(len(links), maxEntries)] {
		source, ok1 := below("native", l.Source)
		target, ok2 := below("native", l.Target)
		if !ok1 || !ok2 || !filepath.IsLocal(source) || !filepath.IsLocal(target) {
			return fmt.Errorf("%w: the link %q leads out of its folder", errDamaged, l.Target)
		}
		to, err := filepath.Rel(path.Dir(target), source)
		if err != nil {
			return err
		}
		if err := link(root, target, to); err != nil {
			return err
		}
	}
	return nil
}
