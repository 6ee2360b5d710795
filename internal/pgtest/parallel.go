package pgtest

import (
	"flag"
	"runtime"
	"strconv"
)

// MoreAtOnce makes n parallel tests of a package run at once, even if there are fewer cores,
// because they mostly wait. The flag -parallel overrides it. Call it in TestMain, before the flags
// are parsed.
func MoreAtOnce(n int) {
	if OnCitus() {
		n = min(n, citusAtOnce)
	}
	if runtime.GOMAXPROCS(0) < n {
		flag.Set("test.parallel", strconv.Itoa(n))
	}
}
