package asyncflow

import (
	"strconv"
	"strings"
)

// numberBits is how many low bits of a task number count within a roll; the
// bits above tell the roll's position.
const numberBits = 40

// MaxPosition is the last roll that ids can name.
const MaxPosition = 1<<22 - 1

// FirstBySQL is the lowest sequence number of tasks that were submitted by SQL, which doesn't
// take its numbers from the nodes.
const FirstBySQL = 1 << (numberBits - 1)

// TaskID names a task: its type, and a number that holds the position of the roll that keeps the
// task and a sequence number within it. So the id alone determines the table to read.
type TaskID struct {
	Type   string
	Number int64 // position<<40 | sequence number
}

// NewTaskID returns the id of the n-th task of a roll.
func NewTaskID(taskType string, position int, n int64) TaskID {
	return TaskID{Type: taskType, Number: int64(position)<<numberBits | n}
}

// Position returns the roll that keeps the task in its tables.
func (id TaskID) Position() int { return int(id.Number >> numberBits) }

// Sequence returns the task's number within its roll.
func (id TaskID) Sequence() int64 { return id.Number & (1<<numberBits - 1) }

// String returns the id as callers see it: type.position.sequence, such as
// "thumbnails.1.42".
func (id TaskID) String() string {
	return string(id.Append(make([]byte, 0, len(id.Type)+24)))
}

// Append appends what String returns.
func (id TaskID) Append(b []byte) []byte {
	b = append(append(b, id.Type...), '.')
	b = append(strconv.AppendInt(b, int64(id.Position()), 10), '.')
	return strconv.AppendInt(b, id.Sequence(), 10)
}

// MarshalText is String.
func (id TaskID) MarshalText() ([]byte, error) { return id.Append(nil), nil }

// UnmarshalText is ParseTaskID.
func (id *TaskID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseTaskID(string(text))
	return err
}

// ParseTaskID reads what String wrote. Anything else is CodeInvalid.
func ParseTaskID(s string) (TaskID, error) {
	invalid := func() (TaskID, error) {
		return TaskID{}, InvalidField("id", "must look like thumbnails.1.42 (type.position.number)")
	}
	parts := strings.Split(s, ".")
	if len(parts) != 3 || CheckName(parts[0]) != nil {
		return invalid()
	}
	position, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || position < 1 || position > MaxPosition {
		return invalid()
	}
	n, err := strconv.ParseInt(parts[2], 10, numberBits+1)
	if err != nil || n < 1 {
		return invalid()
	}
	id := NewTaskID(parts[0], int(position), n)
	if id.String() != s { // one spelling for each id: no leading zeros or signs
		return invalid()
	}
	return id, nil
}
