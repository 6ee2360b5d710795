package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Spans are read as they were written, also the ends of their numbers.
func TestPack(t *testing.T) {
	t.Parallel()
	for _, s := range []span{
		{},
		{Submitted: {1}, Failed: {0, 0, 3}, fieldsEnd - 1: {1<<63 - 1, 0, 1}},
		{Pending: full(maxPlaces, 5), firstWait: {300}, firstDuration + buckets - 1: {0, 128, 255}},
	} {
		got, err := unpack(s.pack())
		require.NoError(t, err)
		assert.Equal(t, s, got)
	}
	packed := span{Failed: {300, 299}}.pack()
	for i := 1; i < len(packed); i++ {
		_, err := unpack(packed[:i])
		require.ErrorIs(t, err, errPacked, "cut after %d bytes", i)
	}
}

// full returns a column of a number.
func full(length int, n int64) (column []int64) {
	for range length {
		column = append(column, n)
	}
	return column
}

// No field of one part is one of another part.
func TestFields(t *testing.T) {
	t.Parallel()
	assert.Less(t, Busy, firstGauge)
	assert.Less(t, Running, firstReason)
	assert.LessOrEqual(t, firstReason+Field(len(reasons)), firstWait)
	assert.LessOrEqual(t, firstWait+buckets, firstDuration)
	assert.LessOrEqual(t, firstDuration+buckets, fieldsEnd)
	last := bucketOf(len(asyncflow.Latencies{}) - 1)
	assert.EqualValues(t, buckets-1, last, "each of asyncflow.Latencies has a bucket")
}

// Recording the same again changes nothing; greater numbers stand. Counters of two times are added
// up, and of gauges the greatest counts.
func TestRaiseAndFold(t *testing.T) {
	t.Parallel()
	v := Values{}
	assert.True(t, v.raise(Values{Submitted: 3, Pending: 9}))
	assert.False(t, v.raise(Values{Submitted: 3, Pending: 9}))
	assert.False(t, v.raise(Values{Submitted: 2}))
	assert.True(t, v.raise(Values{Submitted: 4, Failed: 1}))
	assert.Equal(t, Values{Submitted: 4, Failed: 1, Pending: 9}, v)
	v.fold(Values{Submitted: 10, Pending: 5, firstWait + 3: 2})
	assert.Equal(t, Values{Submitted: 14, Failed: 1, Pending: 9, firstWait + 3: 2}, v)
}

// Percentiles are as exact as the documentation says, against the sorted times.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	var l asyncflow.Latencies
	for i := 1; i <= 1000; i++ { // 1 ms to 1 s
		l.Add(time.Duration(i) * time.Millisecond)
	}
	v := Values{}
	v.countTimes(firstDuration, l[:])
	got := v.Durations()
	assert.InEpsilon(t, 500*time.Millisecond, got.P50, 0.19)
	assert.InEpsilon(t, 950*time.Millisecond, got.P95, 0.19)
	assert.InEpsilon(t, 990*time.Millisecond, got.P99, 0.19)
	assert.Zero(t, v.Waits(), "none of them")
	for took := shortest; took < 48*24*time.Hour; took = took * 11 / 10 {
		var l asyncflow.Latencies
		l.Add(took)
		v := Values{}
		v.countTimes(firstWait, l[:])
		assert.InEpsilon(t, took, v.Waits().P50, 0.1893, "%s", took)
	}
}

// A query without a step gets few points, and limits are named.
func TestQuery(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 42, 31, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		q      Query
		points int
		step   time.Duration
		fault  string
	}{
		{Query{}, 61, time.Minute, ""},
		{Query{From: now.Add(-day)}, 289, 5 * time.Minute, ""},
		{Query{From: now.Add(-day), Step: time.Minute}, 1441, time.Minute, ""},
		{Query{From: now.Add(-30 * day)}, 241, 3 * time.Hour, ""},
		{Query{From: now.Add(-30 * day), Step: time.Hour}, 721, time.Hour, ""},
		{Query{From: now.Add(-30 * day), Step: day}, 31, day, ""},
		{Query{Until: now.Add(-2 * time.Hour)}, 61, time.Minute, ""},
		{Query{From: now.Add(-31 * day)}, 0, 0, "from is"},
		{Query{From: now}, 0, 0, "from is"},
		{Query{From: now.Add(-time.Hour), Until: now.Add(-2 * time.Hour)}, 0, 0, "from is"},
		{Query{From: now.Add(-2 * day), Step: 5 * time.Minute}, 0, 0, "step is"},
		{Query{Step: 7 * time.Minute}, 0, 0, "step is"},
		{Query{Step: time.Second}, 0, 0, "step is"},
		{Query{Step: -time.Minute}, 0, 0, "step is"},
	} {
		t.Run(fmt.Sprint(c.q.From, c.q.Until, c.q.Step), func(t *testing.T) {
			got, err := c.q.fix(now)
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault, "%+v", c.q)
				assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.step, got.Step, "%+v", c.q)
			assert.Equal(t, c.points, got.points(got.Step), "%+v", c.q)
		})
	}
}
