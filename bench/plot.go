package main

import (
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// chart is a plot of lines.
type chart struct {
	file, title, y string
	keys           []string // of the figures that are lines

	x      string
	lines  []line
	labels []string // of the places 0, 1, 2 on the x axis; nil: numbers
}

type line struct {
	name   string
	points plotter.XYs
}

// linesOf makes a line of each of the rows with the keys. Values that are missing are
// left out.
func linesOf(rows []row, x func(i int) float64, keys ...string) (lines []line) {
	for _, key := range keys {
		for _, r := range rows {
			if r.Key != key {
				continue
			}
			l := line{name: r.Name}
			for i, v := range r.Values {
				if !math.IsNaN(v) {
					l.points = append(l.points, plotter.XY{X: x(i), Y: v})
				}
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// save writes the plot as SVG into a directory, unless that is "".
func (c chart) save(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.Padding, p.X.Padding, p.Legend.Top = vg.Points(8), vg.Points(4), true
	p.Add(plotter.NewGrid())
	for i, l := range c.lines {
		drawn, err := plotter.NewLine(l.points)
		if err != nil {
			return err
		}
		drawn.Color, drawn.Width = plotutil.Color(i), vg.Points(1.5)
		p.Add(drawn)
		p.Legend.Add(l.name, drawn)
	}
	if c.labels != nil {
		p.NominalX(c.labels...)
		p.X.Max += 0.1
	}
	p.Y.Min, p.Y.Max = 0, p.Y.Max*(1.05+0.07*float64(len(c.lines))) // room for the legend
	return p.Save(18*vg.Centimeter, 8*vg.Centimeter, filepath.Join(dir, c.file+".svg"))
}

// plot writes plots of a timeline.
func (t *timeline) plot(dir string, charts ...chart) error {
	for _, c := range charts {
		c.x = "seconds"
		c.lines = linesOf(t.Rows, func(i int) float64 { return t.Seconds[i] }, c.keys...)
		if err := c.save(dir); err != nil {
			return err
		}
	}
	return nil
}

// plot writes plots of a grid.
func (g *grid) plot(dir string, charts ...chart) error {
	for _, c := range charts {
		c.x, c.labels = g.By, g.Columns
		c.lines = linesOf(g.Rows, func(i int) float64 { return float64(i) }, c.keys...)
		if err := c.save(dir); err != nil {
			return err
		}
	}
	return nil
}
