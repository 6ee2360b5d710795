package thumbnails

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
