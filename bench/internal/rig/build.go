package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Program is the package of the program that is measured.
const Program = "github.com/asyncflow/asyncflow/cmd/asyncflow"

// Build builds the program to measure, unless there is one.
func (r *Rig) Build(ctx context.Context) error {
	if r.Binary != "" {
		return nil
	}
	return r.BuildWith(ctx)
}

// BuildWith builds the program to measure with flags of go build.
func (r *Rig) BuildWith(ctx context.Context, flags ...string) error {
	binary := r.Path("asyncflow")
	args := append(append([]string{"build", "-o", binary}, flags...), Program)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build ./cmd/asyncflow: %w", err)
	}
	r.Binary = binary
	return nil
}

// buildRevision is a script with the revision, a directory and a file as its arguments.
const buildRevision = `
cd "$(git rev-parse --show-toplevel)"
git archive --format=tar "$1^{commit}" | tar -x -C "$2"
cd "$2"
exec go build -o "$3" ./cmd/asyncflow`

// BuildRevision builds the program of a revision from a copy of its files, and returns its path.
func (r *Rig) BuildRevision(ctx context.Context, revision string) (string, error) {
	tree, binary := r.Path("tree"), r.Path("asyncflow-base")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", buildRevision, "bash",
		revision, tree, binary)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", revision, err, strings.TrimSpace(string(output)))
	}
	return binary, nil
}
