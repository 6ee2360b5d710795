package thumbnails

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
)

// replaceFile writes data to name inside root, and makes missing folders. Readers see the old file
// or the new one, never a part. A file is complete on disk before its completion is reported, so a
// power cut can't damage it. Two writers of one name don't disturb each other.
func replaceFile(root *os.Root, name string, data []byte) error {
	folder, base := path.Split(name)
	if folder != "" {
		if err := root.MkdirAll(path.Clean(folder), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	temporary := path.Join(folder, "."+base+"."+rand.Text()+".tmp")
	err := writeSynced(root, temporary, data)
	if err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary) // best effort: it may not exist
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeSynced makes a file, and returns once its bytes are on disk.
func writeSynced(root *os.Root, name string, data []byte) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(file.Sync(), file.Close())
}
