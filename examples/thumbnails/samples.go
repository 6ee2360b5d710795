package thumbnails

import (
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// Document is the YAML document with the task type and the endpoints of this worker. It uses the
// environment variables THUMBNAILS_URL, where asyncflow reaches the worker, and THUMBNAILS_SECRET.
//
//go:embed asyncflow.yaml
var Document []byte

//go:embed samples
var samples embed.FS

// WriteSamples writes the sample images into dir, and returns their names in order. It makes dir if
// it doesn't exist, and keeps existing files.
func WriteSamples(dir string) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	entries, err := samples.ReadDir("samples")
	if err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	for _, e := range entries {
		if err := writeSample(root, e.Name()); err != nil {
			return nil, fmt.Errorf("write samples: %w", err)
		}
		names = append(names, e.Name())
	}
	return names, nil
}

func writeSample(root *os.Root, name string) error {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err // nil: there already
	}
	data, err := samples.ReadFile("samples/" + name)
	if err != nil {
		return err
	}
	return replaceFile(root, name, data)
}

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
	defer func() { _ = root.Remove(temporary) }() // it is there only after an error
	if err := writeSynced(root, temporary, data); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := root.Rename(temporary, name); err != nil {
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
