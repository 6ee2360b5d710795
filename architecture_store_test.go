package asyncflow_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A storeRoom is a part of package store. Its files use files of rooms with a lower level, and
// their own. Its methods of a Store have the type of its name as their receiver.
type storeRoom struct {
	name  string
	level int
	files string // patterns without .go; a name comes before a pattern, a longer pattern first
}

// storeRooms lists the rooms. store/rooms.go says what each does.
var storeRooms = []storeRoom{
	{"core", 0, `core catalog catalog_* table_* tables clock wakeups meter nodes database errors
		query page lock audit audit_call config_* tenant tenant_survey type type_of_task type_row
		type_state type_limits type_flow type_claims endpoint_row roll roll_move roll_rules roll_tables job job_cursors submitted
		task_watchers outbox_tell`},
	{"rows", 1, `row row_* statements fan_out`},
	{"hotPath", 2, `commit commit_* lease lease_* flow_* id_numbers history
		submit_charges outbox_linger`},
	{"trees", 3, `edge edge_* fan_out_* vote vote_* outbox outbox_* redrive cancel`},
	{"counts", 3, `stats stats_* endpoint_counts endpoint_minutes task_waits`},
	{"claims", 4, `claim claim_*`},
	{"tasks", 4, `task_* operation operation_* vote_list`},
	{"settings", 4, `type_* endpoint_* schedule schedule_put tenant_* alert_* audit_list submit_*
		quota_* migrate`},
	{"upkeep", 5, `task_rescue task_promote roll_* schedule_tick schedule_tick_* job_* vacuum
		stats_fold tenant_activity`},
	{"Store", 6, `store doc run`},
}

// TestStoreRooms checks that the rooms of package store use each other downwards only. It reads no
// other packages, so it misses a use if only the types of another package show it.
func TestStoreRooms(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	names, err := filepath.Glob("store/*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	checkReceivers(t, fset, files)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}, Importer: noImporter{}}
	_, _ = config.Check("store", fset, files, info) // its errors are about the imports
	found := 0
	for id, object := range info.Uses {
		if object.Pkg() == nil || object.Pkg().Path() != "store" || !object.Pos().IsValid() {
			continue
		}
		from, to := fset.Position(id.Pos()), fset.Position(object.Pos())
		if filepath.Base(from.Filename) == "rooms.go" || filepath.Base(to.Filename) == "rooms.go" {
			continue // it puts them together
		}
		found++
		user, used := storeRoomOf(t, from.Filename), storeRoomOf(t, to.Filename)
		assert.True(t, user.name == used.name || user.level > used.level,
			"%s: room %s must not use %s of room %s (%s): move that to a file of a lower room",
			from, user.name, id.Name, used.name, to)
	}
	assert.Greater(t, found, 5000)
}

// checkReceivers checks that methods stand in the room of their type: methods of a Store have the
// type of their room as the receiver.
func checkReceivers(t *testing.T, fset *token.FileSet, files []*ast.File) {
	roomOfType := map[string]string{}
	for _, room := range storeRooms {
		roomOfType[room.name] = room.name
	}
	type method struct{ room, receiver, name string }
	var methods []method
	for _, file := range files {
		at := fset.Position(file.Pos()).Filename
		if filepath.Base(at) == "rooms.go" {
			continue
		}
		room := storeRoomOf(t, at).name
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					receiver, _, _ := strings.Cut(types.ExprString(d.Recv.List[0].Type), "[")
					methods = append(methods, method{room, strings.TrimPrefix(receiver, "*"), d.Name.Name})
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && roomOfType[spec.Name.Name] == "" {
						roomOfType[spec.Name.Name] = room
					}
				}
			}
		}
	}
	for _, m := range methods {
		assert.Equal(t, m.room, roomOfType[m.receiver],
			"%s is a method of %s: move it to the other room, or make it a function or a method of %s",
			m.name, m.receiver, m.room)
	}
}

// noImporter imports nothing.
type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) {
	return nil, errors.New("not imported")
}

// storeRoomOf returns the room of a file.
func storeRoomOf(t *testing.T, file string) (found storeRoom) {
	name := strings.TrimSuffix(filepath.Base(file), ".go")
	best := ""
	for _, room := range storeRooms {
		for _, pattern := range strings.Fields(room.files) {
			if pattern == name {
				return room
			}
			if ok, _ := path.Match(pattern, name); ok && len(pattern) > len(best) {
				best, found = pattern, room
			}
		}
	}
	require.NotEmpty(t, best, "%s has no room in storeRooms", file)
	return found
}
