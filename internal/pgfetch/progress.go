//go:build linux || darwin

package pgfetch

import (
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
)

// progressPoll is how often the bar moves.
const progressPoll = 100 * time.Millisecond

// show prints what is being fetched and, on a terminal, the progress; total is -1 if it is
// unknown. The returned function ends that.
func (f *fetch) show(what string, total int64, done func() int64) (stop func()) {
	fmt.Fprintf(f.Progress, "The programs of Postgres are not installed; fetching the %s, into "+
		"%s.\n",
		what, f.Dir)
	if file, ok := f.Progress.(*os.File); !ok || !isatty.IsTerminal(file.Fd()) {
		return func() {}
	}
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(f.Progress),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(20))
	quit := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				_ = bar.Exit()
				_ = bar.Clear()
				return
			case <-time.After(progressPoll):
			}
			if total > 0 {
				_ = bar.Set64(min(done(), total-1)) // only npm knows when it is done
			} else {
				_ = bar.Add(1)
			}
		}
	}()
	return func() { close(quit); <-ended }
}
