package thumbnails

import (
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // formats that can be read
	_ "image/jpeg"
	_ "image/png"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	_ "golang.org/x/image/webp"

	"github.com/asyncflow/asyncflow/worker"
)

// picture is the header of an image file, and the output of the stage "inspect".
type picture struct {
	Image  string `json:"image"`  // path inside the folder of images
	Format string `json:"format"` // jpeg, png, gif or webp
	Width  int    `json:"width"`  // pixels
	Height int    `json:"height"` // pixels
	Bytes  int64  `json:"bytes"`  // of the file
}

// photo is the context of a task: an image inside the folder.
type photo struct {
	Image string `json:"image"`
}

// name returns the cleaned path of the image.
func (p photo) name() (string, error) {
	if p.Image == "" {
		return "", errors.New(`the context must be an object such as {"image": "harbour.jpg"}`)
	}
	return path.Clean(p.Image), nil
}

// inspect is the handler of the stage "inspect". Its return value is the answer.
func (w *Worker) inspect(_ context.Context, t worker.Task[photo]) (picture, error) {
	name, err := t.Context.name()
	if err != nil {
		return picture{}, worker.Fail(err)
	}
	file, p, err := openPicture(w.images, name)
	if err != nil {
		return picture{}, failure(err)
	}
	return p, file.Close()
}

// failure returns the error that ends an attempt: for good, unless another attempt may avoid it.
func failure(err error) error {
	var passing transientError
	if errors.As(err, &passing) {
		return worker.Retry(err, time.Second)
	}
	return worker.Fail(err)
}

// openPicture opens an image of the folder and reads its header. The file's offset is then after
// the header. The caller closes the file.
func openPicture(images *os.Root, name string) (*os.File, picture, error) {
	file, size, err := openRegular(images, name)
	if err != nil {
		return nil, picture{}, err
	}
	config, format, err := image.DecodeConfig(file)
	if err != nil {
		_ = file.Close() // only read from
		return nil, picture{}, fmt.Errorf("read %s: %w", name, err)
	}
	return file, picture{
		Image:  name,
		Format: format,
		Width:  config.Width,
		Height: config.Height,
		Bytes:  size,
	}, nil
}

// openRegular opens a file and returns its size in bytes. It checks the file before, because
// opening a named pipe would block for ever.
func openRegular(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, 0, passing(err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a file", name)
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, 0, passing(err)
	}
	return file, info.Size(), nil
}

// transientError is a failure that another attempt may avoid.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// passing marks err as transient if it is about this process or machine and not about the file: no
// descriptors left, or a worker that is closing.
func passing(err error) error {
	for _, t := range []error{fs.ErrClosed, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, t) {
			return transientError{err}
		}
	}
	return err
}
