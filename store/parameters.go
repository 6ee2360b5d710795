package store

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// roomy encodes arrays as pgx does, but makes room for a whole one first. Else the buffer of
// a statement's parameters, which is a new one each time, would grow by a quarter at a time:
// a batch of contexts would take five times their bytes.
type roomy struct{ *pgtype.ArrayCodec }

// makeRoomy has the long arrays of the hot statements encoded so.
func makeRoomy(types *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int8ArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID, pgtype.JSONArrayOID, pgtype.Float4ArrayOID} {
		if t, ok := types.TypeForOID(oid); ok {
			if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				types.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: roomy{codec}})
			}
		}
	}
}

// PlanEncode is that of pgx with room made first.
func (c roomy) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	plan := c.ArrayCodec.PlanEncode(m, oid, format, value)
	if plan == nil {
		return nil
	}
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case pgtype.FlatArray[int64]:
			if oid == pgtype.Int8ArrayOID {
				return roomyPlan{flatPlan[int64]{element: pgtype.Int8OID, append: appendInt8}}
			}
		case pgtype.FlatArray[[]byte]:
			if oid == pgtype.TextArrayOID {
				return roomyPlan{flatPlan[[]byte]{element: pgtype.TextOID, append: appendText}}
			}
		}
	}
	return roomyPlan{plan}
}

// flatPlan encodes an array in Postgres' binary format (array_recv) as pgx does, which puts
// each element on the heap to look at it.
type flatPlan[T any] struct {
	element uint32                                         // its OID
	append  func(buf []byte, v T) (_ []byte, notNull bool) // an element, without its length
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

type roomyPlan struct{ pgtype.EncodePlan }

// Encode makes a quarter more room than the array takes: for what else the statement has.
func (p roomyPlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.EncodePlan.Encode(value, slices.Grow(buf, room(value)*5/4))
}

// moments and texts are arrays of times and texts, of which nil is NULL. Of plain slices pgx
// would put each time on the heap, twice, and read the pointers by reflection.
type (
	moments = pgtype.FlatArray[*moment]
	texts   = pgtype.FlatArray[*string]
)

type moment time.Time

// TimestamptzValue is for pgx.
func (m *moment) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: time.Time(*m), Valid: true}, nil
}

// momentsOf returns times as a parameter, which must stay as they are.
func momentsOf(times []time.Time) moments {
	out := make(moments, len(times))
	for i := range times {
		out[i] = (*moment)(&times[i])
	}
	return out
}

// room returns how many bytes an array takes in Postgres' binary format, or a little more.
func room(array any) int {
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
	case texts:
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
