package asyncflow_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		load   asyncflow.StageLoad
		target time.Duration
		most   int
		want   int
	}{
		"nothing to do": {want: 0},
		"a steady rate": {
			asyncflow.StageLoad{Started: 10, Service: 2 * time.Second}, time.Minute, 0, 20},
		"a part of a slot": {
			asyncflow.StageLoad{Started: 0.1, Service: time.Second}, time.Minute, 0, 1},
		"a backlog alone": {
			asyncflow.StageLoad{Backlog: 600, Service: time.Second}, time.Minute, 0, 10},
		"both": {
			asyncflow.StageLoad{Backlog: 600, Service: time.Second, Started: 5}, time.Minute, 0,
			15},
		"sooner": {
			asyncflow.StageLoad{Backlog: 600, Service: time.Second}, 10 * time.Second, 0, 60},
		"no attempt has ended": {asyncflow.StageLoad{Backlog: 1}, time.Minute, 0, 1},
		"a task is running":    {asyncflow.StageLoad{Running: 1}, time.Minute, 0, 1},
		"limited by the type": {
			asyncflow.StageLoad{Backlog: 6000, Service: time.Second}, time.Minute, 8, 8},
		"rounding": {
			asyncflow.StageLoad{Started: 0.1, Service: 30 * time.Second}, time.Minute, 0, 3},
		"beyond all bounds": {
			asyncflow.StageLoad{Backlog: math.MaxInt64, Service: time.Hour}, time.Second, 0,
			math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			if c.target == 0 {
				c.target = time.Minute
			}
			assert.Equal(t, c.want, c.load.Slots(c.target, c.most))
		})
	}
}
