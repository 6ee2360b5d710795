package pgtest

import (
	"flag"
	"runtime"
	"strconv"
)

// testsAtOnce is how many parallel tests run at once, also on a machine with fewer cores.
const testsAtOnce = 8

// MoreAtOnce has several parallel tests of a package run at once, even if there are fewer cores,
// because they mostly wait. The flag -parallel overrides it. Call it in TestMain, before the flags
// are parsed.
func MoreAtOnce() {
	if runtime.GOMAXPROCS(0) < testsAtOnce {
		flag.Set("test.parallel", strconv.Itoa(testsAtOnce))
	}
}
