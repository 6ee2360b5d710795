package thumbnails

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"

	"golang.org/x/image/draw"
)

// decode reads an image of the folder. It refuses a header with more than maxPixels before it
// decodes a pixel: a few kilobytes on disk can claim gigabytes of memory.
func decode(images *os.Root, name string, maxPixels int) (src image.Image, err error) {
	defer func() {
		// a broken file that crashes a decoder must not end the worker
		if p := recover(); p != nil {
			err = fmt.Errorf("decode %s: %v", name, p)
		}
	}()
	file, p, err := openPicture(images, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	if p.Width <= 0 || p.Height <= 0 || p.Width > maxPixels/p.Height {
		return nil, fmt.Errorf("%s has %d × %d pixels; between 1 and %d are allowed", name, p.Width,
			p.Height, maxPixels)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, transientError{err}
	}
	src, _, err = image.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	if src.Bounds().Empty() { // the first frame of a GIF may be empty
		return nil, fmt.Errorf("decode %s: no pixels", name)
	}
	return src, nil
}

// writeThumbnail scales src into a square of box pixels and writes it as <name>.<box>.png. The name
// keeps the image's extension: a.jpg and a.png may exist side by side.
func writeThumbnail(out *os.Root, name string, src image.Image, box int) (thumbnail, error) {
	size := fit(src.Bounds().Size(), box)
	dst := image.NewRGBA(image.Rectangle{Max: size})
	draw.CatmullRom.Scale(dst, dst.Bounds(), src, src.Bounds(), draw.Src, nil)
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, dst); err != nil {
		return thumbnail{}, fmt.Errorf("encode %s: %w", name, err)
	}
	t := thumbnail{
		File:   fmt.Sprintf("%s.%d.png", name, box),
		Width:  size.X,
		Height: size.Y,
		Bytes:  encoded.Len(),
	}
	if err := replaceFile(out, t.File, encoded.Bytes()); err != nil {
		return thumbnail{}, transientError{err} // a full disk, most likely
	}
	return t, nil
}

// fit returns the largest size of the same proportions within a square of box pixels, at most size
// and at least one pixel.
func fit(size image.Point, box int) image.Point {
	longest := max(size.X, size.Y)
	if longest <= box {
		return size
	}
	scaled := func(edge int) int { return max(1, (edge*box+longest/2)/longest) }
	return image.Pt(scaled(size.X), scaled(size.Y))
}
