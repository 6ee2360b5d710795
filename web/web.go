// Package web is the console in the browser. Its sources are in src: a folder a page, and parts
// that pages share. go generate bundles them into assets, which are committed and embedded.
package web

import "embed"

//go:generate go run -tags bundle ./build

// Assets holds the bundled files: index.html, console.js, plot.js, console.css, favicon.svg,
// LICENSE.txt.
//
//go:embed assets
var Assets embed.FS
