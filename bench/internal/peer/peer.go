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
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_ms"` // from insert to completion
	P99     float64 `json:"p99_ms"`
}

// Flags say what a program does.
type Flags struct {
	Database string // its URL
	Jobs     int
	URL      string // where each is POSTed; empty: nowhere
}

// ParseFlags reads the arguments of a program.
func ParseFlags(name string, args []string) (flags Flags, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&flags.Database, "database", "", "URL of a database")
	f.IntVar(&flags.Jobs, "jobs", 60000, "number of jobs")
	f.StringVar(&flags.URL, "url", "", "where each is POSTed")
	return flags, f.Parse(args)
}

// Args returns the flags as arguments.
func (f Flags) Args() []string {
	args := []string{"--database", f.Database, "--jobs", fmt.Sprint(f.Jobs)}
	if f.URL != "" {
		args = append(args, "--url", f.URL)
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
