package myriad_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files of the root package, in the order in which to read them. This is policy, as
// arch_test.go is.

// A room is files that belong together.
type room struct {
	name  string
	files []string
}

var rooms = []room{
	{"what users see first", []string{"doc", "errors", "handler", "layer", "config", "engine"}},
	{"leaves", []string{"batch", "measure"}},
	{coreRoom, []string{"conn", "loop", "mail", "write", "settle", "flush", "close"}},
	{"layers", []string{"layers", "wire"}},
	{"hand-off", []string{"shift", "inline", "onloop", "monitor"}},
	{"files", []string{"files"}},
	{"what conns can besides", []string{"addr", "timers", "walk", "conn_syscall"}},
	{"streams", []string{"stream", "stream_handler"}},
	{"adoption of what has no descriptor", []string{"bridge", "direction"}},
	{"detaching", []string{"detach"}},
	{"hibernation", []string{"hibernate"}},
	{"accepting, adopting and dialling", []string{
		"limits", "listener", "accepting", "admit", "adopt", "dial", "dial_func",
	}},
	{"all rooms together", []string{"extra", "stopping", "stats", "figures", "start", "events"}},
	{"systems", []string{"system_linux", "system_kqueue", "system_other", "rlimit_unix", "rlimit_other"}},
}

const (
	coreRoom      = "core"
	maxCoreLines  = 2000
	maxLoopFields = 24
)

// seams are what the core may use of later rooms.
var seams = map[string][]string{
	"the parts of a Loop and of a conn's extra, to which the core holds no more than a place": {
		"shifts", "inlining", "localAddrs", "hibernation", "listeners", "intake", "sink",
		"layering", "fileQueue", "bridge", "detachment",
	},
	"a layer encodes what is written, and decodes what comes": {
		"Conn.layer", "Conn.writeThrough", "Conn.encodeBlocks", "Loop.decodeRest", "Loop.endLayer", "Loop.meaning",
		"Conn.truncation", "Loop.callTruncated", "layering.fin", "layering.unencoded",
	},
	"inline tasks run between two polls, and a callback may end its goroutine": {
		"Loop.runTasks", "Loop.hasNextTask", "inlining.waits", "Loop.exit", "Loop.unwinding",
	},
	"files wait in a conn's output": {
		"Conn.fileBlocks", "Conn.filesFull", "extra.beforeFile", "fileQueue.fileLeft",
	},
	"a conn that leaves the engine is flushed first": {"Conn.detaching", "Loop.tryDetach"},
	"a stream learns of its engine":                  {"Engine.bind"},
	"a bridge carries a reset on":                    {"Conn.abortBridge"},
	"conns come in, between two polls":               {"Loop.admitAll", "intake.takeUp", "intake.empty"},
	"the other parts of a conn wait, end and are given back with it": {
		"extra.waits", "Loop.sendFurther", "Conn.hasUnencoded", "extra.fileBytes", "extra.drop", "Conn.trim",
		"Loop.tellClosed",
	},
	"the end of a loop":   {"Loop.tellStopping", "Loop.fail", "Engine.loopEnded"},
	"a timer has run out": {"Loop.expired"},
}

// A rootPackage is the root package with its types.
type rootPackage struct {
	fset   *token.FileSet
	files  []*ast.File
	pkg    *types.Package
	info   types.Info
	owners map[types.Object]string // of fields
}

// loadRoot checks the types of the package as it is on this system, with what the go command has
// compiled of its imports.
func loadRoot(t *testing.T) *rootPackage {
	t.Helper()
	list := func(args ...string) []string {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	exports := map[string]string{}
	for _, line := range list("-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".") {
		name, file, _ := strings.Cut(line, " ")
		exports[name] = file
	}
	r := &rootPackage{fset: token.NewFileSet(), owners: map[types.Object]string{}}
	for _, name := range list("-f", `{{join .GoFiles "\n"}}`, ".") {
		file, err := parser.ParseFile(r.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		r.files = append(r.files, file)
	}
	compiled := importer.ForCompiler(r.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	r.info = types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: compiled}).Check(modulePath, r.fset, r.files, &r.info)
	if err != nil {
		t.Fatal(err)
	}
	r.pkg = pkg
	for _, name := range pkg.Scope().Names() {
		if s, ok := pkg.Scope().Lookup(name).Type().Underlying().(*types.Struct); ok {
			for i := range s.NumFields() {
				r.owners[s.Field(i)] = name
			}
		}
	}
	return r
}

// file is the name of a position's file, without ".go".
func (r *rootPackage) file(at token.Pos) string {
	return strings.TrimSuffix(filepath.Base(r.fset.Position(at).Filename), ".go")
}

// name is what seams call a thing that the package declares; empty: it is local to a function.
func (r *rootPackage) name(o types.Object) string {
	if f, ok := o.(*types.Func); ok {
		o = f.Origin()
		if recv := f.Signature().Recv(); recv != nil {
			of := recv.Type()
			if p, ok := of.(*types.Pointer); ok {
				of = p.Elem()
			}
			if named, ok := of.(*types.Named); ok {
				return named.Obj().Name() + "." + o.Name()
			}
		}
	}
	if owner := r.owners[o]; owner != "" {
		return owner + "." + o.Name()
	}
	if o != nil && o.Parent() == r.pkg.Scope() {
		return o.Name()
	}
	return ""
}

// places are the rooms of the files, by their number.
func places() map[string]int {
	at := map[string]int{}
	for i, room := range rooms {
		for _, file := range room.files {
			at[file] = i
		}
	}
	return at
}

// An arrow is the use of a thing by the room of a file, where it is of a later room.
type arrow struct {
	from, to int // rooms
	thing    string
}

func (r *rootPackage) arrows() map[arrow]bool {
	at, found := places(), map[arrow]bool{}
	for id, o := range r.info.Uses {
		if o.Pkg() != r.pkg {
			continue
		}
		a := arrow{at[r.file(id.Pos())], at[r.file(o.Pos())], r.name(o)}
		if a.to > a.from && a.thing != "" {
			found[a] = true
		}
	}
	return found
}

// go test -v -run TestRooms prints how many arrows there are against the order of reading.
func TestRooms(t *testing.T) {
	r := loadRoot(t)
	t.Run("order", r.testOrder)
	t.Run("loop", r.testLoop)
	t.Run("phase", r.testPhase)
}

// The core knows of the other rooms what seams lists, and no more.
func (r *rootPackage) testOrder(t *testing.T) {
	known := map[string]bool{}
	for _, names := range seams {
		for _, name := range names {
			known[name] = false
		}
	}
	count := map[[2]int]int{}
	arrows := r.arrows()
	for a := range arrows {
		count[[2]int{a.from, a.to}]++
		if rooms[a.from].name != coreRoom {
			continue
		}
		if _, ok := known[a.thing]; !ok {
			t.Errorf("the core uses %s of %q: call it there, or add it to seams", a.thing, rooms[a.to].name)
		}
		known[a.thing] = true
	}
	for name, used := range known {
		if !used {
			t.Errorf("the core does not use %s any more: take it out of seams", name)
		}
	}
	t.Logf("%d arrows against the order of reading, %d of them seams of the core:", len(arrows), len(known))
	byRoom := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	for _, pair := range slices.SortedFunc(maps.Keys(count), byRoom) {
		t.Logf("%3d  %s -> %s", count[pair], rooms[pair[0]].name, rooms[pair[1]].name)
	}
}

// What a loop knows is grouped by the room that owns it.
func (r *rootPackage) testLoop(t *testing.T) {
	n := r.pkg.Scope().Lookup("Loop").Type().Underlying().(*types.Struct).NumFields()
	if n > maxLoopFields {
		t.Errorf("a Loop has %d fields, of at most %d: group them by the room that owns them", n, maxLoopFields)
	}
	t.Logf("a Loop has %d fields", n)
}

// mayChangePhase are the functions that may: the one that advances it, and the one that uses a Conn
// for another connection.
var mayChangePhase = []string{"advance", "connOf"}

// One function advances the phase of a conn.
func (r *rootPackage) testPhase(t *testing.T) {
	changes := 0
	for _, file := range r.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				a, ok := n.(*ast.AssignStmt)
				if !ok || a.Tok != token.ASSIGN {
					return true
				}
				for _, to := range a.Lhs {
					if field, ok := to.(*ast.SelectorExpr); ok && r.name(r.info.Uses[field.Sel]) == "Conn.status" {
						if changes++; !slices.Contains(mayChangePhase, f.Name.Name) {
							t.Errorf("%s sets Conn.status: phases change by Loop.advance", f.Name.Name)
						}
					}
				}
				return true
			})
		}
	}
	if changes != len(mayChangePhase) {
		t.Errorf("Conn.status is set in %d places, want %d", changes, len(mayChangePhase))
	}
}

// Every file has a room, and every name in rooms is a file's.
func TestRoomsHaveAllFiles(t *testing.T) {
	at := places()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if file := strings.TrimSuffix(name, ".go"); !strings.HasSuffix(name, "_test.go") {
			if _, ok := at[file]; !ok {
				t.Errorf("%s is in no room", name)
			}
			delete(at, file)
		}
	}
	for file := range at {
		t.Errorf("there is no %s.go", file)
	}
}

// The core can be read in one sitting.
func TestCoreIsSmall(t *testing.T) {
	lines := 0
	for _, room := range rooms {
		for _, file := range room.files {
			if room.name == coreRoom {
				text, err := os.ReadFile(file + ".go")
				if err != nil {
					t.Fatal(err)
				}
				lines += strings.Count(string(text), "\n")
			}
		}
	}
	if lines > maxCoreLines {
		t.Errorf("the core has %d lines, of at most %d", lines, maxCoreLines)
	}
	t.Logf("%d lines", lines)
}
