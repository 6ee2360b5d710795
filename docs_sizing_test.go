package asyncflow_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The calculator of docs/sizing.md writes what the page says, and it gives the sums of the example.
func TestSizingCalculator(t *testing.T) {
	t.Parallel()
	page := readText(t, "docs/sizing.md")
	block := match(t, "(?s)```sh\n(# tasks a day.*?)```", page)
	lines := regexp.MustCompile(`(?m)^# ((?:disk|cores) .*)$`).FindAllStringSubmatch(block, -1)
	var want strings.Builder
	for _, m := range lines {
		want.WriteString(m[1] + "\n")
	}
	require.Equal(t, 2, len(lines))
	out, err := exec.CommandContext(t.Context(), "sh", "-c", block).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, want.String(), string(out))

	_, example, _ := strings.Cut(page, "\n## An example\n")
	sums := make([]int, 4)
	for line := range strings.Lines(example) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		if len(cells) != 5 || !strings.ContainsAny(cells[1], "0123456789") {
			continue
		}
		for i, cell := range cells[1:] {
			cell = strings.Trim(strings.ReplaceAll(cell, ",", ""), " *")
			n, err := strconv.Atoi(cell)
			if strings.Contains(cells[0], "in all") {
				variable := []string{"node", "pg", "wal", "disk"}[i]
				assert.Equal(t, sums[i], n, variable)
				assert.Contains(t, block, " -v "+variable+"="+cell+" ")
			} else if err == nil { // a key's disk is for a day
				sums[i] += n
			}
		}
	}
	assert.NotZero(t, sums[0])
}
