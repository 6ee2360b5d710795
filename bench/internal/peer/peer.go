// Package peer is the protocol between the bench and a program that does the same work in another
// way. The program gets Flags as its arguments. It prints "ready" when all is set up, begins at a
// line of its input, prints a Result, and ends with its input.
package peer

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// Result is what a program reports in the end.
type Result struct {
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_ms"` // from insert to completion
	P99        float64 `json:"p99_ms"`
	InsertMean float64 `json:"insert_mean_ms"` // of a job; 0: they are inserted in batches
}

// Flags say what a program does. Those of singly inserted jobs are River's only.
type Flags struct {
	Database string // its URL
	Jobs     int
	URL      string  // where each is POSTed; empty: nowhere
	Singly   bool    // 64 goroutines insert one job at a time
	Rate     float64 // jobs a second that are inserted singly; 0: as many as possible
	Kinds    int     // of jobs that are inserted singly, any at random; 0: one
	Skewed   bool    // 80 % of the jobs are of 20 % of the kinds
}

// ParseFlags reads the arguments of a program.
func ParseFlags(name string, args []string) (flags Flags, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&flags.Database, "database", "", "URL of a database")
	f.IntVar(&flags.Jobs, "jobs", 60000, "number of jobs")
	f.StringVar(&flags.URL, "url", "", "where each is POSTed")
	f.BoolVar(&flags.Singly, "singly", false, "64 goroutines insert one job at a time")
	f.Float64Var(&flags.Rate, "rate", 0, "jobs a second that are inserted singly")
	f.IntVar(&flags.Kinds, "kinds", 0, "kinds of jobs that are inserted singly")
	f.BoolVar(&flags.Skewed, "skewed", false, "80 % of the jobs are of 20 % of the kinds")
	return flags, f.Parse(args)
}

// Args returns the flags as arguments.
func (f Flags) Args() []string {
	args := []string{"--database", f.Database, "--jobs", fmt.Sprint(f.Jobs)}
	if f.URL != "" {
		args = append(args, "--url", f.URL)
	}
	if f.Singly {
		args = append(args, "--singly")
	}
	if f.Rate > 0 {
		args = append(args, "--rate", fmt.Sprint(f.Rate))
	}
	if f.Kinds > 0 {
		args = append(args, "--kinds", fmt.Sprint(f.Kinds))
	}
	if f.Skewed {
		args = append(args, "--skewed")
	}
	return args
}

// Serve is the program's part: it calls measure once when the bench says so, prints the result, and
// waits for the end of its input.
func Serve(measure func() (Result, error)) error {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	result, err := measure()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, input)
	return err
}

// AwaitReady is the bench's part: it waits until the program is ready.
func AwaitReady(output *bufio.Reader) error {
	line, err := output.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		return fmt.Errorf("it is not ready: %q, %w", line, err)
	}
	return nil
}

// Begin tells the program to begin, and waits for its result.
func Begin(input io.Writer, output *bufio.Reader) (r Result, err error) {
	if _, err := io.WriteString(input, "go\n"); err != nil {
		return r, err
	}
	line, err := output.ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("it has reported no result: %w", err)
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return r, fmt.Errorf("%q: %w", line, err)
	}
	return r, nil
}
