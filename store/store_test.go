package store_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store"
)

// What rooms have for each other is not promoted to a Store: it has methods only, beside what all
// callers may read.
func TestStoreShowsMethodsOnly(t *testing.T) {
	t.Parallel()
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[store.Store]()) {
		if f.IsExported() {
			fields = append(fields, f.Name)
		}
	}
	assert.Equal(t, []string{"Clock", "Catalog", "Wakeups"}, fields)
}
