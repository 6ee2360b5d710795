package web_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// fewColours returns a picture with its 256 most frequent colours, which takes a third of the
// bytes. Each other colour, such as one at the edge of a letter, becomes the nearest of these.
func fewColours(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds := from.Bounds()
	count := map[color.RGBA]int{}
	each := func(do func(x, y int, c color.RGBA)) {
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				do(x, y, color.RGBAModel.Convert(from.At(x, y)).(color.RGBA))
			}
		}
	}
	each(func(_, _ int, c color.RGBA) { count[c]++ })
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R),
			cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range frequent[:min(256, len(frequent))] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range count {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	each(func(x, y int, c color.RGBA) { to.SetColorIndex(x, y, nearest[c]) })
	var small bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, to)
	return small.Bytes(), err
}
