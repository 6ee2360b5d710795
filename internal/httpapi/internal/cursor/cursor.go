// Package cursor writes and reads the cursors of lists. A cursor names its list and filter by a
// hash, followed by the key of the last entry of a page: all parts joined by spaces, in base64.
package cursor

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// List stands for a list with its filter. It refuses the cursors of others.
type List string

// Of returns the List with a name and the parameters of a call. A page may differ in parameters
// that don't choose entries, and in the range of times: a range relative to now moves between
// pages.
func Of(name string, params any) List {
	doc, err := json.Marshal(params)
	var filter map[string]any
	if err != nil || json.Unmarshal(doc, &filter) != nil {
		panic("the parameters of a list are no JSON object")
	}
	for _, other := range []string{"cursor", "limit", "outputs", "since", "until", "ended_since",
		"ended_until"} {
		delete(filter, other)
	}
	doc, _ = json.Marshal(filter) // in the order of names
	sum := sha256.Sum256(append([]byte(name+" "), doc...))
	return List(base64.RawURLEncoding.EncodeToString(sum[:6]))
}

// Write returns the cursor of the page after the entry with a key, or "" if there are no more
// entries. No part of a key is empty or contains a space.
func (l List) Write(more bool, key ...string) string {
	if !more {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(string(l) + " " + strings.Join(key, " ")))
}

// Read returns the n parts of a cursor's key. On the first page, where the cursor is "", all
// parts are "".
func (l List) Read(cursor string, n int) ([]string, error) {
	if cursor == "" {
		return make([]string, n), nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	key := strings.Split(string(raw), " ")
	if err != nil || len(key) != n+1 || slices.Contains(key, "") {
		return nil, Bad()
	}
	if key[0] != string(l) {
		return nil, asyncflow.InvalidField("cursor",
			"is not a next_cursor of this list with this filter")
	}
	return key[1:], nil
}

// ReadName reads the cursor of a list by name.
func (l List) ReadName(cursor string) (string, error) {
	key, err := l.Read(cursor, 1)
	if err != nil || key[0] != "" && asyncflow.CheckName(key[0]) != nil {
		return "", Bad()
	}
	return key[0], nil
}

// WriteNumber returns the cursor of the page after the entry with a number, or "" if the number
// is 0: there are no more entries.
func (l List) WriteNumber(number int64) string {
	return l.Write(number > 0, strconv.FormatInt(number, 36))
}

// ReadNumber reads the cursor of a list by number; the first page's number is 0.
func (l List) ReadNumber(cursor string) (int64, error) {
	key, err := l.Read(cursor, 1)
	if err != nil || key[0] == "" {
		return 0, err
	}
	number, err := strconv.ParseInt(key[0], 36, 64)
	if err != nil || number <= 0 {
		return 0, Bad()
	}
	return number, nil
}

// PlaceKey returns the two parts of the key of an entry in a list by time.
func PlaceKey(p store.Place) []string {
	return []string{strconv.FormatInt(p.At.UnixMicro(), 36), p.ID}
}

// ParsePlace parses the parts that PlaceKey returns. Two empty parts are the zero place, which
// is before all entries.
func ParsePlace(at, id string) (store.Place, error) {
	if at == "" && id == "" {
		return store.Place{}, nil
	}
	micros, err := strconv.ParseInt(at, 36, 64)
	parsed, err2 := uuid.Parse(id)
	if err != nil || err2 != nil || micros <= 0 || micros > maxMicros {
		return store.Place{}, Bad()
	}
	return store.Place{At: time.UnixMicro(micros).UTC(), ID: parsed.String()}, nil
}

// ReadPlace reads the cursor of a list by time.
func (l List) ReadPlace(cursor string) (store.Place, error) {
	key, err := l.Read(cursor, 2)
	if err != nil {
		return store.Place{}, err
	}
	return ParsePlace(key[0], key[1])
}

// maxMicros is a time that Postgres can still represent, in microseconds: in the year 9999.
var maxMicros = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// Bad returns the error of a cursor that its list did not write.
func Bad() error {
	return asyncflow.InvalidField("cursor", "is not a next_cursor of this list")
}
