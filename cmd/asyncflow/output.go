package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// listing is the JSON document of a list.
type listing[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// asList returns the document of a list; that of an empty one is an empty array.
func asList[T any](data []T, cursor string) listing[T] {
	if data == nil {
		data = []T{}
	}
	return listing[T]{Data: data, NextCursor: cursor}
}

// asDocument prints what a call returned as a document, if that is the output. It reports whether
// nothing is left to print. It returns the error of a call that failed: then nothing is left, too.
func (g *globals) asDocument(doc any, err error) (done bool, _ error) {
	if err != nil || g.output != "json" {
		return err != nil, err
	}
	return true, g.printJSON(doc)
}

// printJSON writes one indented document to stdout.
func (g *globals) printJSON(doc any) error {
	return writeDocument(g.stdout, "  ", doc)
}

// printJSONLine writes one document to stdout, in one line.
func (g *globals) printJSONLine(doc any) error { return writeDocument(g.stdout, "", doc) }

// writeDocument writes a document as JSON. What isn't printable in its texts is escaped: a terminal
// takes some of it for commands, and bidirectional controls change the order of what is read.
func writeDocument(w io.Writer, indent string, doc any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := w.Write(escapeUnprintable(b.Bytes()))
	return err
}

// escapeUnprintable escapes characters of JSON texts from DEL on that are not printable. The JSON
// escapes the characters before DEL, and means the same afterwards.
func escapeUnprintable(doc []byte) []byte {
	safe := make([]byte, 0, len(doc))
	for _, r := range string(doc) {
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
	}
	return safe
}

// printTable writes aligned rows below a header. It makes cells safe to show.
func (g *globals) printTable(header string, rows [][]string) error {
	w := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = cell(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printPage prints a table, and the cursor of the next page if there is one.
func (g *globals) printPage(header string, rows [][]string, cursor string) error {
	if err := g.printTable(header, rows); err != nil || cursor == "" {
		return err
	}
	_, err := fmt.Fprintf(g.stderr, "there are more: --cursor %s\n", cursor)
	return err
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printFields writes pairs of name and value, one per line. It leaves out pairs without a
// value.
func (g *globals) printFields(pairs ...string) error {
	w := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], printable(pairs[i+1]))
		}
	}
	return w.Flush()
}

// cellWidth is the limit of a cell in characters.
const cellWidth = 100

// cell returns a text for a table: printable, "-" if empty, and cut at cellWidth.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	runes := []rune(printable(text))
	if len(runes) > cellWidth {
		runes = append(runes[:cellWidth-1], '…')
	}
	return string(runes)
}

// printable returns a text in one line without control characters: texts of workers must not
// control the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return '�'
	}, text)
}

// timeText returns a time as RFC 3339 in UTC to the millisecond, "" for none.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// exactTime returns a time with all its digits, "" for none.
func exactTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
