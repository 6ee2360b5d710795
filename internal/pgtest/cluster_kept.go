package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// clusterFormat says what this package does to a cluster after initdb. Whoever changes that, as
	// checkPasswordsByMD5 or removeMaps, raises it: older clusters aren't used any more.
	clusterFormat = 2
	// mostKept is how many clusters stay in the cache, of 40 MB each.
	mostKept = 4
	// keptSize is a file in a kept cluster that says how large pgdata is.
	keptSize = "size"
	// stagingPrefix begins the names of clusters that are being made or removed.
	stagingPrefix = "new-"
	// stagingAge is how old such a cluster is when nobody works at it any more.
	stagingAge = time.Hour
)

// keptName is the directory of a kept cluster in the cache.
func keptName(cache, key string) string {
	return filepath.Join(cache, fmt.Sprintf("cluster-%d-%s", clusterFormat, key))
}

// usable reports whether a kept cluster is there, belongs to this user, as does the cache, and has
// all of its files. It discards a cluster that has not.
func usable(name string) bool {
	if !private(filepath.Dir(name)) || !private(name) {
		return false
	}
	size, err := treeSize(filepath.Join(name, "pgdata"))
	want, errWant := os.ReadFile(filepath.Join(name, keptSize))
	if err != nil || errWant != nil || size != string(want) {
		_ = discard(name)
		return false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // it is in use: others are removed before it
	return true
}

// private reports whether a path is a directory that belongs to this user, and nobody else may
// enter. The settings in a cluster name programs that its server runs.
func private(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	return int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// treeSize says how many files a directory has, and how many bytes they have together.
func treeSize(dir string) (string, error) {
	var files, size int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files++
		size += info.Size()
		return nil
	})
	return fmt.Sprintf("%d files, %d bytes\n", files, size), err
}

// keep keeps a copy of a cluster under a name that it has only once it is complete, also after the
// machine has lost its power. It fails if another process was faster. Then it removes old clusters.
func keep(cluster, name string) error {
	cache := filepath.Dir(name)
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	if !private(cache) {
		return fmt.Errorf("others may use %s", cache)
	}
	if _, err := os.Lstat(name); err == nil { // it is of another process, or not usable
		return fs.ErrExist
	}
	staging, err := os.MkdirTemp(cache, stagingPrefix)
	if err != nil {
		return err
	}
	leash, err := reap(staging)
	if err != nil {
		return errors.Join(err, os.RemoveAll(staging))
	}
	defer leash.Close() // removes what wasn't renamed
	if err := copyCluster(cluster, staging); err != nil {
		return err
	}
	size, err := treeSize(filepath.Join(staging, "pgdata"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(staging, keptSize), []byte(size), 0o600); err != nil {
		return err
	}
	if err := syncTree(staging); err != nil {
		return err
	}
	if err := os.Rename(staging, name); err != nil {
		return err
	}
	return errors.Join(syncFile(cache), removeOld(cache))
}

// syncTree writes the files and directories of a directory to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncFile(name)
	})
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// discard removes a cluster. It loses its name first: no process finds a part of it.
func discard(name string) error {
	aside, err := os.MkdirTemp(filepath.Dir(name), stagingPrefix)
	if err != nil {
		return err
	}
	err = os.Rename(name, filepath.Join(aside, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) { // another process was faster
		err = nil
	}
	return errors.Join(err, os.RemoveAll(aside))
}

// removeOld removes all clusters but those used last, and what a process has left behind that ended
// while it made or removed one.
func removeOld(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil { // another process has removed it
			continue
		}
		if !strings.HasPrefix(info.Name(), stagingPrefix) {
			kept = append(kept, info)
		} else if time.Since(info.ModTime()) > stagingAge {
			_ = os.RemoveAll(filepath.Join(cache, info.Name()))
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Compare(b.ModTime().UnixNano(), a.ModTime().UnixNano())
	})
	for _, old := range kept[min(len(kept), mostKept):] {
		err = errors.Join(err, discard(filepath.Join(cache, old.Name())))
	}
	return err
}
