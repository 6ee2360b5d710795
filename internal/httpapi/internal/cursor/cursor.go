package httpapi

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// maxPage is the most entries of a page of what a tenant configures, and as many as there
// are unless told.
const maxPage = 500

// pageLimit returns how many entries a page has at most; 0 is not told.
func pageLimit(told int) int {
	if told == 0 {
		return maxPage
	}
	return told
}

// writeKeyCursor returns the cursor of the page after the entry with a key, or "" if there is
// no more. No part of the key has a space.
func writeKeyCursor(more bool, key ...string) string {
	if !more {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(key, " ")))
}

// readKeyCursor returns the n parts of the key of a cursor; all are "" at the first page.
func readKeyCursor(cursor string, n int) ([]string, error) {
	if cursor == "" {
		return make([]string, n), nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	key := strings.Split(string(raw), " ")
	if err != nil || len(key) != n {
		return nil, badCursor()
	}
	return key, nil
}

// readNameCursor reads the cursor of a list by name.
func readNameCursor(cursor string) (string, error) {
	key, err := readKeyCursor(cursor, 1)
	if err != nil || key[0] != "" && asyncflow.CheckName(key[0]) != nil {
		return "", badCursor()
	}
	return key[0], nil
}

func placeKey(p store.Place) []string {
	return []string{strconv.FormatInt(p.At.UnixMicro(), 36), p.ID}
}

// readPlace reads what placeKey has written; the zero place for empty texts.
func readPlace(at, id string) (store.Place, error) {
	if at == "" && id == "" {
		return store.Place{}, nil
	}
	micros, err := strconv.ParseInt(at, 36, 64)
	parsed, err2 := uuid.Parse(id)
	if err != nil || err2 != nil || micros <= 0 || micros > maxMicros {
		return store.Place{}, badCursor()
	}
	return store.Place{At: time.UnixMicro(micros).UTC(), ID: parsed.String()}, nil
}

func badCursor() error {
	return asyncflow.InvalidField("cursor", "is not a next_cursor of this list")
}
