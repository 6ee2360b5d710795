package postgres_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Moments encode times to the same bytes as a plain slice.
func TestMoments(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	times := []time.Time{time.Now(), {},
		time.Date(1999, 1, 1, 0, 0, 0, 1000, time.FixedZone("", 3600))}
	encode := func(times any) []byte {
		buf, err := types.Encode(pgtype.TimestamptzArrayOID, pgtype.BinaryFormatCode, times, nil)
		require.NoError(t, err)
		return buf
	}
	want := encode([]*time.Time{nil, &times[0], &times[1], &times[2]})
	require.Equal(t, want, encode(append(postgres.Moments{nil}, postgres.MomentsOf(times)...)))
}

// Presized arrays are the same bytes, and take fewer buffers.
func TestPresizedArrays(t *testing.T) { // not parallel: it counts allocations
	plain, presized := pgtype.NewMap(), pgtype.NewMap()
	postgres.PresizeArrays(presized)
	const n = 1000
	text := strings.Repeat("x", 200)
	var pointers pgtype.FlatArray[*string]
	var documents pgtype.FlatArray[[]byte]
	numbers := make([]int64, n)
	for i := range n {
		numbers[i] = int64(1000 + i)
		pointers, documents = append(pointers, &text), append(documents, []byte(text))
	}
	texts := strings.Split(strings.Repeat(text+",", n), ",")
	null := pgtype.FlatArray[[]byte]{nil, {}, []byte("1")}
	for _, c := range []struct {
		oid  uint32
		long any
		some []any
		flat bool
	}{
		{pgtype.Int8ArrayOID, numbers,
			[]any{[]int64{1, -1, math.MaxInt64}, []int64{}, []int64(nil)}, true},
		{pgtype.TimestamptzArrayOID, make([]time.Time, n),
			[]any{[]time.Time{time.Now()}, []*time.Time{nil, {}}}, false},
		{pgtype.Float4ArrayOID, make([]float32, n), []any{[]*float32{nil, new(float32)}}, false},
		{pgtype.TextArrayOID, texts, []any{[]string{"", "ä"}, []*string{nil, &text}}, false},
		{pgtype.TextArrayOID, pointers, []any{pgtype.FlatArray[*string]{nil, &text}}, false},
		{pgtype.TextArrayOID, documents,
			[]any{null, pgtype.FlatArray[[]byte]{}, [][]byte{[]byte("1")}, [][]byte(nil)}, true},
		{pgtype.JSONArrayOID, documents, []any{null, []string{"1"}, []*string{nil, &text}}, false},
	} {
		t.Run(fmt.Sprintf("%d of %T", c.oid, c.long), func(t *testing.T) {
			for _, value := range append(c.some, c.long) {
				want, err := plain.Encode(c.oid, pgtype.BinaryFormatCode, value, []byte("before"))
				require.NoError(t, err)
				got, err := presized.Encode(c.oid, pgtype.BinaryFormatCode, value, []byte("before"))
				require.NoError(t, err)
				require.Equal(t, want, got, "%T", value)
			}
			buffers := func(types *pgtype.Map) float64 {
				return testing.AllocsPerRun(3, func() {
					_, err := types.Encode(c.oid, pgtype.BinaryFormatCode, c.long,
						make([]byte, 0, 256))
					require.NoError(t, err)
				})
			}
			assert.Less(t, buffers(presized), buffers(plain)-5, fmt.Sprintf("%T", c.long))
			if c.flat {
				assert.Less(t, buffers(presized), 10.0, "elements don't go to the heap")
			}
		})
	}
}
