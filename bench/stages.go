package main

import "github.com/asyncflow/asyncflow/bench/internal/rig"

// stages asks: how fast do tasks go on from stage to stage? A third of the tasks makes as many
// deliveries.
var stages = scenario{
	"stages", "Three stages, one POST each", 1,
	delivering(rig.Shape{Stages: 3}, 3),
}
