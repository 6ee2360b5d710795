package main

import (
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// accepted asks: how fast are tasks with a worker that answers 202, and completes each by a call?
var accepted = scenario{
	"accepted", "202, and a completion call for each task", 1,
	delivering(rig.Shape{Path: worker.AcceptPath}, 3),
}
