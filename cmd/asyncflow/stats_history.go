package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// checkHistory refuses options of --history without it, and options that don't go with it.
func (c *statsCmd) checkHistory() error {
	switch {
	case !c.History && (c.Since != 0 || c.Step != 0 || c.Stage != "" || c.ByType):
		return asyncflow.InvalidField("--since, --step, --stage and --by-type", "need --history")
	case c.History && (c.Watch || c.Autoscale != "" || c.Target != 0):
		return asyncflow.InvalidField("--history",
			"goes with none of --watch, --autoscale and --target")
	case c.Stage != "" && c.Type == "":
		return asyncflow.InvalidField("--stage", "needs --type")
	case c.ByType && c.Type != "":
		return asyncflow.InvalidField("--by-type", "is of all types, not with --type")
	case c.Since < 0:
		return asyncflow.InvalidField("--since", "is %s; it must be more than 0s", c.Since)
	}
	return nil
}

// history shows what happened over time: a chart on a terminal, elsewhere a table.
func (c *statsCmd) history(ctx context.Context, g *globals, terminal bool) error {
	q := client.HistoryQuery{Type: c.Type, Stage: c.Stage, Step: c.Step, ByType: c.ByType}
	if c.Since != 0 {
		q.From = now().Add(-c.Since)
	}
	h, err := g.client().History(ctx, q)
	if done, err := g.asDocument(h, err); done {
		return err
	}
	switch {
	case c.ByType:
		err = g.printTypeHistories(h)
	case terminal:
		err = g.printHistoryChart(h)
	default:
		err = g.printHistoryTable(h)
	}
	if err != nil {
		return err
	}
	for _, m := range h.Marks {
		until := ""
		if !m.Until.IsZero() {
			until = " to " + timeText(m.Until)
		}
		if _, err := fmt.Fprintf(g.stdout, "%s%s: %s %s: %s\n", timeText(m.At), until,
			printable(string(m.Kind)), printable(m.Type), printable(m.Text)); err != nil {
			return err
		}
	}
	if h.MarksCut {
		_, err = fmt.Fprintln(g.stdout, "there are older marks")
	}
	return err
}

// printHistoryTable prints a line for each point.
func (g *globals) printHistoryTable(h client.StatsHistory) error {
	rows := make([][]string, len(h.Points))
	for i, p := range h.Points {
		rows[i] = []string{timeText(p.At), number(p.Submitted), number(p.Succeeded),
			number(p.Failed), number(p.Cancelled), number(p.Attempts), number(p.Retried),
			number(dueTasks(p)), number(p.Running), latencyText(p.Wait.P50Ms),
			latencyText(p.Wait.P99Ms), latencyText(p.Duration.P50Ms),
			latencyText(p.Duration.P95Ms), latencyText(p.Duration.P99Ms)}
	}
	return g.printTable("AT SUBMITTED SUCCEEDED FAILED CANCELLED ATTEMPTS RETRIED BACKLOG RUNNING "+
		"WAIT-P50 WAIT-P99 P50 P95 P99", rows)
}

// typeColumns is the most columns of the chart of one type.
const typeColumns = 12

// printTypeHistories prints a line for each type: how many tasks came in, went out and failed, as a
// number and as blocks, the greatest backlog and the longest p99.
func (g *globals) printTypeHistories(h client.StatsHistory) error {
	rows := make([][]string, len(h.Types))
	for i, t := range h.Types {
		var in, out, failed, backlog int64
		var p99 float32
		for _, p := range t.Points {
			in += p.Submitted
			out += p.Succeeded
			failed += p.Failed
			backlog = max(backlog, dueTasks(p))
			p99 = max(p99, p.Duration.P99Ms)
		}
		of := h
		of.Points = t.Points
		chart := func(read func(client.HistoryPoint) int64) string {
			values, most := columnsOf(of, typeColumns, count(read))
			return blocks(values, most, make([]bool, len(values)))
		}
		rows[i] = []string{t.Type,
			number(in), chart(func(p client.HistoryPoint) int64 { return p.Submitted }),
			number(out), chart(func(p client.HistoryPoint) int64 { return p.Succeeded }),
			number(failed), chart(func(p client.HistoryPoint) int64 { return p.Failed }),
			number(backlog), latencyText(p99)}
	}
	return g.printTable("TYPE SUBMITTED ▁▄█ SUCCEEDED ▁▄█ FAILED ▁▄█ BACKLOG P99", rows)
}

// columnsOf returns the greatest values of a number in at most some columns, and the greatest of
// all.
func columnsOf(
	h client.StatsHistory, most int, read func(client.HistoryPoint) float64,
) (values []float64, greatest float64) {
	steps := int(h.Until.Sub(h.From) / h.Step.Std())
	each := (steps + most - 1) / most // steps in a column
	values = make([]float64, (steps+each-1)/each)
	for _, p := range h.Points {
		column := int(p.At.Sub(h.From)/h.Step.Std()) / each
		if column < 0 || column >= len(values) {
			continue
		}
		values[column] = max(values[column], read(p))
		greatest = max(greatest, values[column])
	}
	return values, greatest
}

// dueTasks returns how many tasks were due and not under way.
func dueTasks(p client.HistoryPoint) (sum int64) {
	for _, n := range p.Backlog {
		sum += n
	}
	return sum
}

// chartWidth is the most columns of a chart.
const chartWidth = 72

// chartLine is one line of a chart: a number of each point.
type chartLine struct {
	name  string
	value func(client.HistoryPoint) float64
	text  func(float64) string
}

func count(read func(client.HistoryPoint) int64) func(client.HistoryPoint) float64 {
	return func(p client.HistoryPoint) float64 { return float64(read(p)) }
}

// chartLines are the lines of a chart.
func chartLines() []chartLine {
	plain := func(n float64) string { return number(int64(n)) }
	took := func(ms float64) string { return latencyText(float32(ms)) }
	return []chartLine{
		{"submitted", count(func(p client.HistoryPoint) int64 { return p.Submitted }), plain},
		{"succeeded", count(func(p client.HistoryPoint) int64 { return p.Succeeded }), plain},
		{"failed", count(func(p client.HistoryPoint) int64 { return p.Failed }), plain},
		{"cancelled", count(func(p client.HistoryPoint) int64 { return p.Cancelled }), plain},
		{"attempts", count(func(p client.HistoryPoint) int64 { return p.Attempts }), plain},
		{"retried", count(func(p client.HistoryPoint) int64 { return p.Retried }), plain},
		{"backlog", count(dueTasks), plain},
		{"running", count(func(p client.HistoryPoint) int64 { return p.Running }), plain},
		{"wait p99", func(p client.HistoryPoint) float64 { return float64(p.Wait.P99Ms) }, took},
		{"attempt p50", func(p client.HistoryPoint) float64 {
			return float64(p.Duration.P50Ms)
		}, took},
		{"attempt p99", func(p client.HistoryPoint) float64 {
			return float64(p.Duration.P99Ms)
		}, took},
	}
}

// printHistoryChart prints a line of blocks for each kind of number that is not always 0. A block
// is one step or the greatest of several; a blank is 0, and a dot is not known.
func (g *globals) printHistoryChart(h client.StatsHistory) error {
	steps := int(h.Until.Sub(h.From) / h.Step.Std())
	each := (steps + chartWidth - 1) / chartWidth // steps in a column
	width := (steps + each - 1) / each
	unknown := unknownColumns(h, width, time.Duration(each)*h.Step.Std())
	for _, line := range chartLines() {
		values, most := columnsOf(h, chartWidth, line.value)
		if most == 0 {
			continue
		}
		if _, err := fmt.Fprintf(g.stdout, "%-11s %s  at most %s\n", line.name,
			blocks(values, most, unknown), line.text(most)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(g.stdout, "%-11s %s to %s, %s a column\n", "", timeText(h.From),
		timeText(h.Until), time.Duration(each)*h.Step.Std())
	if err == nil && slices.Contains(unknown, true) {
		_, err = fmt.Fprintf(g.stdout, "%-11s ·: no node recorded\n", "")
	}
	return err
}

// recordedLate is how long after a time nodes may not have recorded it yet.
const recordedLate = 3 * time.Minute

// unknownColumns reports which columns are without a point and without a step that a node recorded.
// The last minutes are not known yet.
func unknownColumns(h client.StatsHistory, width int, column time.Duration) []bool {
	unknown := make([]bool, width)
	for i := range unknown {
		from := h.From.Add(time.Duration(i) * column)
		until := from.Add(column)
		recorded := slices.ContainsFunc(h.Recorded, func(r client.HistorySpan) bool {
			return r.From.Before(until) && r.Until.After(from)
		})
		known := slices.ContainsFunc(h.Points, func(p client.HistoryPoint) bool {
			return !p.At.Before(from) && p.At.Before(until)
		})
		over := until.Before(time.Now().Add(-recordedLate))
		unknown[i] = over && !recorded && !known
	}
	return unknown
}

// blocks returns values as blocks that are higher for greater ones; 0 is a blank, or a dot if it
// isn't known.
func blocks(values []float64, most float64, unknown []bool) string {
	heights := []rune("▁▂▃▄▅▆▇█")
	var line strings.Builder
	for i, v := range values {
		if v <= 0 {
			blank := ' '
			if unknown[i] {
				blank = '·'
			}
			line.WriteRune(blank)
			continue
		}
		line.WriteRune(heights[min(len(heights)-1, int(v/most*float64(len(heights))))])
	}
	return line.String()
}
