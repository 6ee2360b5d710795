package tasks

import (
	"sync"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A path is counted from the first row of the journal on, and there may be thousands of rows of a
// task that loops. So a node remembers the paths of tasks with long journals, and reads only later
// rows.

// longPath is the number of rows from which on a path is remembered.
const longPath = 500

// mostPaths bounds the memory: a path takes up to 16 KB.
const mostPaths = 1000

// knownPaths are the paths that a node remembers.
type knownPaths struct {
	mu    sync.Mutex
	known map[pathKey]path
}

type pathKey struct {
	config.TypeKey
	id int64
}

// get returns what is known of the path of a task as far as it had come when it was read.
func (k *knownPaths) get(t *config.Type, task *Task) path {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.known[pathKey{t.Key(), task.ID.Number}]
	if !ok || p.until > task.seq {
		return newPath()
	}
	return p.clone()
}

// note remembers the path of a task, unless it is short.
func (k *knownPaths) note(t *config.Type, id int64, p path) {
	if p.until < longPath {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[pathKey]path{}
	}
	if len(k.known) >= mostPaths {
		for some := range k.known {
			delete(k.known, some)
			break
		}
	}
	k.known[pathKey{t.Key(), id}] = p.clone()
}
