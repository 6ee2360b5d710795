package postgres

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// presized encodes arrays as pgx does, but grows the buffer for a whole array first. The
// buffer of a statement's parameters is new each time and would grow by a quarter at a time:
// a batch of contexts would take five times its bytes.
type presized struct{ *pgtype.ArrayCodec }

// PresizeArrays presizes the long arrays of the hot statements.
func PresizeArrays(types *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.Int8ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID,
		pgtype.JSONArrayOID, pgtype.Float4ArrayOID,
	} {
		if t, ok := types.TypeForOID(oid); ok {
			if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				types.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: presized{codec}})
			}
		}
	}
}

// PlanEncode returns the plan of pgx behind a buffer that is grown first.
func (c presized) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	plan := c.ArrayCodec.PlanEncode(m, oid, format, value)
	if plan == nil {
		return nil
	}
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case pgtype.FlatArray[int64]:
			if oid == pgtype.Int8ArrayOID {
				return presizedPlan{flatPlan[int64]{element: pgtype.Int8OID, append: appendInt8}}
			}
		case pgtype.FlatArray[[]byte]:
			if oid == pgtype.TextArrayOID {
				return presizedPlan{flatPlan[[]byte]{element: pgtype.TextOID, append: appendText}}
			}
		}
	}
	return presizedPlan{plan}
}

// flatPlan encodes an array in Postgres' binary format (array_recv). The plan of pgx does
// the same, but puts each element on the heap.
type flatPlan[T any] struct {
	element uint32 // OID of the elements
	// append appends an element without its length.
	append func(buf []byte, v T) (_ []byte, notNull bool)
}

// Encode appends the array.
func (p flatPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	values := value.(pgtype.FlatArray[T])
	if values == nil {
		return nil, nil
	}
	const dimensions, firstIndex, isNull = 1, 1, math.MaxUint32
	start := len(buf)
	for _, n := range []uint32{dimensions, 0, p.element, uint32(len(values)), firstIndex} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, v := range values {
		at := len(buf)
		buf = binary.BigEndian.AppendUint32(buf, isNull)
		if next, notNull := p.append(buf, v); notNull {
			buf = next
			binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
		} else {
			binary.BigEndian.PutUint32(buf[start+4:], 1) // there are NULLs
		}
	}
	return buf, nil
}

func appendInt8(buf []byte, n int64) ([]byte, bool) {
	return binary.BigEndian.AppendUint64(buf, uint64(n)), true
}

func appendText(buf, text []byte) ([]byte, bool) { return append(buf, text...), text != nil }

type presizedPlan struct{ pgtype.EncodePlan }

// Encode grows the buffer by a quarter more than the array takes, for the statement's other
// parameters.
func (p presizedPlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.EncodePlan.Encode(value, slices.Grow(buf, encodedSize(value)*5/4))
}

// Moments and Texts are arrays of times and texts, in which nil is NULL. Pgx would put each
// time of a plain slice on the heap, twice, and read pointers by reflection.
type (
	Moments = pgtype.FlatArray[*Moment]
	Texts   = pgtype.FlatArray[*string]
)

// Moment is an element of Moments.
type Moment time.Time

// TimestamptzValue is called by pgx.
func (m *Moment) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: time.Time(*m), Valid: true}, nil
}

// encodedSize returns the bytes that an array takes in Postgres' binary format, or a little
// more.
func encodedSize(array any) int {
	const header, length, widest = 20, 4, 8
	n := header
	switch values := array.(type) {
	case pgtype.FlatArray[string]:
		for _, v := range values {
			n += length + len(v)
		}
	case pgtype.FlatArray[[]byte]:
		for _, v := range values {
			n += length + len(v)
		}
	case Texts:
		for _, v := range values {
			if n += length; v != nil {
				n += len(*v)
			}
		}
	case pgtype.ArrayGetter:
		for _, d := range values.Dimensions() {
			n += int(d.Length) * (length + widest)
		}
	}
	return n
}
