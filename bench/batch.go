package main

import (
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// batch asks: how fast are tasks delivered when a POST may carry up to 50?
var batch = scenario{
	"batch", "Batch delivery, 50 tasks a POST", 1,
	delivering(rig.Shape{
		Path:     worker.BatchPath,
		Endpoint: `,"batch":{"max_tasks":50,"max_wait":"20ms"}`,
	}, 1),
}
