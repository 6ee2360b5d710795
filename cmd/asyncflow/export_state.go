package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

// exportFlags let an export go on where the last one ended.
type exportFlags struct {
	State string `placeholder:"FILE"`
	// Lag bounds how long after its time a row may become visible: each bears the time of its
	// transaction, and is seen from the commit on.
	Lag time.Duration `default:"5m"`
}

func (f exportFlags) checkLag() error {
	if f.Lag < 0 {
		return usageError(asyncflow.InvalidField("--lag", "is %s; it must be 0s or more", f.Lag))
	}
	return nil
}

// exportState is the content of the file of --state.
type exportState struct {
	Until time.Time `json:"until"` // everything before was exported
	exportSource
}

// exportSource is what an export is about.
type exportSource struct {
	Server string         `json:"server"` // the address of its API
	Tenant string         `json:"tenant"` // "": no tenant's
	Filter map[string]any `json:"filter"` // without times
}

// exportWindow is the time that an export is about: from since on, and before until. It is empty if
// until isn't after since.
type exportWindow struct {
	since, until time.Time // no since: from the beginning
	source       exportSource
}

// exporter exports what ended, or was written, since the last run. T is such a thing.
type exporter[T any] struct {
	exportFlags
	operator     bool      // it is about no tenant
	filter       any       // of the lists; without its times it is a part of the state
	since, until time.Time // of the flags
	// list returns a page of what there is in a window, and the cursor of the next one.
	list func(ctx context.Context, w exportWindow, cursor string) ([]T, string, error)
	at   func(T) time.Time
	// write writes some of them, the earliest first.
	write func(context.Context, []T) error
	// count says how many they are.
	count func(int) string
}

// run exports what is earlier than a time by the database's clock, less the lag. The lists of the
// API are in another order. So a spool keeps them until all are known.
func (e exporter[T]) run(ctx context.Context, g *globals, now time.Time) error {
	filter, err := filterMembers(e.filter)
	if err != nil {
		return err
	}
	source := exportSource{g.server, g.tenant, filter}
	switch {
	case e.operator:
		source.Tenant = ""
	case g.tenant == "":
		return usageError(asyncflow.InvalidField("--state", "needs a token that names its tenant "+
			"in the claim tenant: otherwise nothing tells the exports of two tenants apart"))
	}
	w, err := e.window(now, e.since, e.until, source)
	if err != nil {
		return err
	}
	s, err := newSpool()
	if err != nil {
		return err
	}
	defer s.close()
	cursor := ""
	for more := !w.empty(); more; more = cursor != "" {
		var page []T
		if page, cursor, err = e.list(ctx, w, cursor); err != nil {
			return err
		}
		for _, one := range page {
			if err := s.add(e.at(one), one); err != nil {
				return err
			}
		}
	}
	err = drain(s, exportChunk, func(some []T) error { return e.write(ctx, some) })
	if err != nil {
		return err
	}
	if err = e.finish(w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.stderr, "%s written; once they are stored: mv %s %s\n",
		e.count(len(s.lines)), e.next(), e.State)
	return err
}

// window returns what is to be exported at a time by the database's clock: from the end of the last
// export, or without one from since, to the lag before that time, or to until if that is earlier.
func (f exportFlags) window(
	now, since, until time.Time, source exportSource,
) (w exportWindow, err error) {
	w = exportWindow{since, now.Add(-f.Lag), source}
	if !until.IsZero() && until.Before(w.until) {
		w.until = until
	}
	// What an export left that wasn't stored must not count for this one.
	if err := os.Remove(f.next()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w, err
	}
	text, err := os.ReadFile(f.State)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	var state exportState
	if err := json.Unmarshal(text, &state); err != nil || state.Until.IsZero() {
		return w, usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s is not the state of an export", f.State))
	}
	if state.Server != source.Server || state.Tenant != source.Tenant {
		return w, usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s is the state of an export of %s, and this one is of %s: give each its own", f.State,
			state.exportSource, source))
	}
	if !sameFilter(state.Filter, source.Filter) {
		return w, usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"%s is the state of an export with another filter: give each its own", f.State))
	}
	w.since = state.Until
	return w, nil
}

// String names the tenant and the server.
func (s exportSource) String() string {
	whose := "no tenant"
	if s.Tenant != "" {
		whose = "tenant " + s.Tenant
	}
	return whose + " at " + cmp.Or(s.Server, "no server")
}

// empty reports whether there is nothing to export yet.
func (w exportWindow) empty() bool { return !w.since.Before(w.until) }

// next is the file with the state after an export.
func (f exportFlags) next() string { return f.State + ".next" }

// finish writes the state after an export, once all of it was written.
func (f exportFlags) finish(w exportWindow) error {
	if w.empty() {
		w.until = w.since
	}
	text, err := json.Marshal(exportState{w.until.UTC(), w.source})
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(f.State), filepath.Base(f.State)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(append(text, '\n'))
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), f.next())
}

// filterMembers returns the members of a filter that are set, except for its times: these may be
// others in each run.
func filterMembers(filter any) (map[string]any, error) {
	text, err := json.Marshal(filter)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	maps.DeleteFunc(members, func(name string, value any) bool {
		switch strings.ToLower(name) {
		case "since", "until", "ended_since", "ended_until":
			return true
		}
		return value == nil || value == "" || value == 0.0
	})
	return members, nil
}

// sameFilter reports whether two filters select alike.
func sameFilter(a, b map[string]any) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// spool keeps lines in a temporary file, to write them in the order of their times. In memory it
// keeps 24 bytes for each.
type spool struct {
	file  *os.File
	w     *bufio.Writer
	size  int64
	lines []spooledLine
}

type spooledLine struct {
	at   int64 // in µs
	from int64 // in the file
	n    int32 // bytes
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "asyncflow-export-*")
	if err != nil {
		return nil, err
	}
	// Where a file may lose its name while it is open, nothing stays of it after a kill.
	_ = os.Remove(f.Name())
	return &spool{file: f, w: bufio.NewWriterSize(f, 64<<10)}, nil
}

// close removes the file where newSpool couldn't.
func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// add adds a document.
func (s *spool) add(at time.Time, doc any) error {
	line, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	s.lines = append(s.lines, spooledLine{at.UnixMicro(), s.size, int32(len(line))})
	s.size += int64(len(line))
	_, err = s.w.Write(line)
	return err
}

// exportChunk is how many documents are written at once.
const exportChunk = 64

// drain reads the documents of a spool, the earliest first, and passes up to n at once. Of two with
// the same time the one that was added later comes first, as lists show the newest first.
func drain[T any](s *spool, n int, pass func([]T) error) error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	slices.SortFunc(s.lines, func(a, b spooledLine) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.from, a.from))
	})
	for lines := range slices.Chunk(s.lines, n) {
		docs := make([]T, len(lines))
		for i, line := range lines {
			r := io.NewSectionReader(s.file, line.from, int64(line.n))
			if err := json.NewDecoder(r).Decode(&docs[i]); err != nil {
				return fmt.Errorf("read %s: %w", s.file.Name(), err)
			}
		}
		if err := pass(docs); err != nil {
			return err
		}
	}
	return nil
}
