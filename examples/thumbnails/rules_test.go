package thumbnails

import (
	"image"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for size, want := range map[image.Point]image.Point{
		{X: 1600, Y: 1000}: {X: 256, Y: 160},
		{X: 1000, Y: 1600}: {X: 160, Y: 256},
		{X: 256, Y: 256}:   {X: 256, Y: 256},
		{X: 257, Y: 257}:   {X: 256, Y: 256},
		{X: 30, Y: 20}:     {X: 30, Y: 20},
		{X: 50_000, Y: 1}:  {X: 256, Y: 1},
		{X: 1, Y: 50_000}:  {X: 1, Y: 256},
	} {
		t.Run(size.String(), func(t *testing.T) {
			require.Equal(t, want, fit(size, 256), size)
		})
	}
}
