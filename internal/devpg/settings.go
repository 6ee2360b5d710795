//go:build linux || darwin

package devpg

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// serverArgs returns the command line of postgres. A later setting overrides an earlier one, so
// the caller's come last.
func serverArgs(cfg Config, pgdata, socketDir string) []string {
	onOff := "off"
	if cfg.Durable {
		onOff = "on"
	}
	ours := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(cfg.Port),
		"unix_socket_directories": quoteDir(socketDir),
		"max_connections":         "200",
		// the default begins with the schema of the role's name: ours
		"search_path":        "public",
		"timezone":           "UTC",
		"log_timezone":       "UTC",
		"logging_collector":  "off", // the log comes to us
		"fsync":              onOff,
		"synchronous_commit": onOff,
		"full_page_writes":   onOff,
	}
	args := []string{"-D", pgdata}
	for _, settings := range []map[string]string{ours, cfg.Settings} {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			args = append(args, "-c", name+"="+settings[name])
		}
	}
	return args
}

// quoteDir quotes a directory for a setting that is a list of directories.
func quoteDir(dir string) string {
	if dir == "" {
		return ""
	}
	return `"` + strings.ReplaceAll(dir, `"`, `""`) + `"`
}
