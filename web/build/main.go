//go:build bundle

// Command build bundles the console's sources into assets. It runs in the folder web, after npm ci.
//
// It has a build tag, since esbuild takes longer to compile than most packages' tests take to run.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// libraries are contained in the bundle.
var libraries = []string{"preact", "@preact/signals", "@preact/signals-core", "preact-iso",
	"uplot"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := bundleFunctions(); err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:       []string{"src/console.tsx", "src/chart/plot.ts"},
		Outdir:            "assets",
		Bundle:            true,
		EntryNames:        "[name]",
		Write:             true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LegalComments:     api.LegalCommentsNone, // the licences are in LICENSE.txt
		LogLevel:          api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return errors.New("the sources can't be bundled; did npm ci run here?")
	}
	for _, name := range []string{"index.html", "favicon.svg"} {
		if err := copyFile(filepath.Join("src", name), filepath.Join("assets", name)); err != nil {
			return err
		}
	}
	return writeLicences()
}

// tested are the files whose functions tests call by themselves. They need no library.
var tested = []string{"src/chart/series.ts", "src/format.ts", "src/json.ts", "src/json_fault.ts",
	"src/schedules/when.ts", "src/task/trace_url.ts", "src/types/document.ts"}

// bundleFunctions writes testdata/functions.js: a script with an object, exported, that has the
// exports of each file by the file's name. The first line names the sources and has their SHA-256,
// by which a test sees that they have changed since.
func bundleFunctions() error {
	var source strings.Builder
	for _, file := range tested {
		fmt.Fprintf(&source, "export * as %q from %q\n", file, "./"+file)
	}
	result := api.Build(api.BuildOptions{
		Stdin:      &api.StdinOptions{Contents: source.String(), ResolveDir: "."},
		Outfile:    "testdata/functions.js",
		Bundle:     true,
		Metafile:   true,
		Format:     api.FormatIIFE,
		GlobalName: "exported",
		Target:     api.ES2022,
		LogLevel:   api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return errors.New("the functions that tests call can't be bundled")
	}
	var meta struct{ Inputs map[string]any }
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return err
	}
	delete(meta.Inputs, "<stdin>")
	sources := slices.Sorted(maps.Keys(meta.Inputs))
	hash := sha256.New()
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		hash.Write(text)
	}
	script := fmt.Appendf(nil, "// %s %x\n", strings.Join(sources, " "), hash.Sum(nil))
	return os.WriteFile("testdata/functions.js", append(script, result.OutputFiles[0].Contents...),
		0o644)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// writeLicences writes the licences of the libraries in the bundle.
func writeLicences() error {
	all := bytes.NewBufferString("The console contains these libraries.\n")
	for _, name := range libraries {
		text, err := os.ReadFile(filepath.Join("node_modules", name, "LICENSE"))
		if err != nil {
			return err
		}
		fmt.Fprintf(all, "\n%s\n\n%s\n", name, bytes.TrimSpace(text))
	}
	return os.WriteFile(filepath.Join("assets", "LICENSE.txt"), all.Bytes(), 0o644)
}
