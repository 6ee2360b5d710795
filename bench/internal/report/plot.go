package report

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

// Chart is a plot of lines. The timeline or grid that it belongs to draws it.
type Chart struct {
	File, Title, Y string   // its file is without an ending; Y is the unit
	Keys           []string // of the figures that are lines

	x      string
	lines  []line
	labels []string // of the places 0, 1, 2 on the x axis; nil: numbers
}

type line struct {
	name   string
	points plotter.XYs
}

// linesOf makes a line of each of the rows with the keys. It leaves out values that are missing.
func linesOf(rows []Row, x func(i int) float64, keys ...string) (lines []line) {
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

// save writes the plot as SVG to a directory, unless that is "".
func (c Chart) save(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.x, c.Y
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
	p.Y.Min = 0
	p.Y.Max *= 1.05 + 0.07*float64(len(c.lines)) // space for the legend
	return p.Save(18*vg.Centimeter, 8*vg.Centimeter, filepath.Join(dir, c.File+".svg"))
}

// Plot writes charts of a timeline to a directory, unless that is "".
func (t *Timeline) Plot(dir string, charts ...Chart) error {
	for _, c := range charts {
		c.x = "seconds"
		c.lines = linesOf(t.Rows, func(i int) float64 { return t.Seconds[i] }, c.Keys...)
		if err := c.save(dir); err != nil {
			return err
		}
	}
	return nil
}

// Plot writes charts of a grid to a directory, unless that is "".
func (g *Grid) Plot(dir string, charts ...Chart) error {
	for _, c := range charts {
		c.x, c.labels = g.By, g.Columns
		c.lines = linesOf(g.Rows, func(i int) float64 { return float64(i) }, c.Keys...)
		if err := c.save(dir); err != nil {
			return err
		}
	}
	return nil
}
