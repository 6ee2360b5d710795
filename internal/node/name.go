package node

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// NewName returns a name for this process that no other node of the database has.
func NewName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	host = strings.ReplaceAll(host, " ", "-")
	now := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + now
}
