package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// buildInfo describes this build.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Time    string `json:"time,omitempty"` // of the commit
	Go      string `json:"go"`
}

// readBuildInfo returns version with what the Go tool recorded at build time.
func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; b.Version == "dev" && v != "" && v != "(devel)" {
		b.Version = v // built by go install …@version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

// versionCmd shows the version.
type versionCmd struct{}

// Run shows the version.
func (c *versionCmd) Run(g *globals) error {
	b := readBuildInfo()
	if g.output == "json" {
		return g.printJSON(b)
	}
	line := "asyncflow " + b.Version
	if b.Commit != "" {
		line += " (" + b.Commit + ", " + b.Time + ")"
	}
	_, err := fmt.Fprintln(g.stdout, line, b.Go)
	return err
}
