package thumbnails

import (
	"errors"
	"fmt"
	"image"
	_ "image/gif" // the formats that can be read
	_ "image/jpeg"
	_ "image/png"
	"io/fs"
	"net/http"
	"os"
	"syscall"

	_ "golang.org/x/image/webp"
)

// picture is what the first bytes of an image file tell, and the output of the
// stage "inspect".
type picture struct {
	Image  string `json:"image"`  // path inside the folder of images
	Format string `json:"format"` // jpeg, png, gif or webp
	Width  int    `json:"width"`  // pixels
	Height int    `json:"height"` // pixels
	Bytes  int64  `json:"bytes"`  // of the file
}

// inspect answers a delivery of the stage "inspect" with the picture. An image
// that is missing or unreadable is the outcome "fail".
func (w *Worker) inspect(rw http.ResponseWriter, r *http.Request) {
	d, ok := w.accept(rw, r, "inspect")
	if !ok {
		return
	}
	file, p, err := openPicture(w.images, d.image)
	switch {
	case err == nil:
		_ = file.Close() // only read from
		writeJSON(rw, http.StatusOK, answer{Output: p})
	case retryable(err):
		busy(rw)
	default:
		writeJSON(rw, http.StatusOK, answer{Outcome: "fail", Error: err.Error()})
	}
	log := w.log.With("task", d.TaskID, "attempt", d.Attempt, "image", d.image)
	if err != nil {
		log = log.With("failure", err)
	}
	log.Info("inspected")
}

// openPicture opens an image of the folder and reads its header. The file's
// offset is then after the header; the caller closes the file.
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
	return file, picture{Image: name, Format: format, Width: config.Width, Height: config.Height, Bytes: size}, nil
}

// openRegular opens a file and returns its size in bytes. It looks before it
// opens, since opening a named pipe would block for ever.
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

// transientError is a failure that another attempt may not meet.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

func retryable(err error) bool {
	var t transientError
	return errors.As(err, &t)
}

// passing marks err as transient when it tells of this process or machine
// instead of the file: no descriptors left, or a worker that is closing.
func passing(err error) error {
	for _, t := range []error{fs.ErrClosed, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, t) {
			return transientError{err}
		}
	}
	return err
}
