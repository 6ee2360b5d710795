// Package payload makes the contexts of the tasks that are measured, and finds the number of a
// task in a delivery again.
package payload

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strconv"
)

// Usual is the size of a context in bytes, unless a scenario asks for another.
const Usual = 200

// largest is the size of the largest context that Append makes, in bytes.
const largest = 128 << 10

// padding hardly compresses: Postgres would otherwise store less than the size of a context.
var padding = func() string {
	random := make([]byte, largest*3/4)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	return base64.StdEncoding.EncodeToString(random)
}()

// Append appends a context of size bytes. It contains n, by which the worker knows the task.
func Append(b []byte, n, size int) []byte {
	start := len(b)
	b = append(b, `{"n":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"pad":"`...)
	b = append(b, padding[:size-(len(b)-start)-len(`"}`)]...)
	return append(b, `"}`...)
}

// Number returns the number in the context of a delivery. It doesn't read the whole document:
// the worker's own work is not what is measured.
func Number(delivery []byte) (int, bool) {
	text, _ := Between(delivery, `"context":{"n":`, ",")
	n, err := strconv.Atoi(string(text))
	return n, err == nil && n >= 0
}

// Between returns the text between before and after, and the rest behind after. Both are nil when
// the document lacks one of them.
func Between(in []byte, before, after string) (text, rest []byte) {
	_, rest, found := bytes.Cut(in, []byte(before))
	text, rest, ended := bytes.Cut(rest, []byte(after))
	if !found || !ended {
		return nil, nil
	}
	return text, rest
}
