package myriad_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// This is policy: change it together with docs/ARCHITECTURE.md, which says why, and not to make a
// build pass.

const modulePath = "github.com/myriad-go/myriad"

// arrows are the imports within the project that each package may have, tests excepted. They only
// point down. "." is the engine. What stands in no line is a new package: it gets one.
var arrows = map[string][]string{
	"buf":           nil,
	"workers":       nil,
	"internal/pace": nil,

	"internal/retryafter": nil,

	"internal/table":   nil,
	"internal/bridge":  {"buf", "internal/driver"},
	"internal/handoff": {"internal/driver"},
	"internal/wheel":   {"internal/table"},
	"internal/parts":   nil,

	"internal/lifetime": nil,

	"internal/freeport": nil, // for tests, and commands that start several servers
	"internal/leaktest": nil, // for tests
	"internal/soak":     nil, // for tests

	"internal/httpscript": {"internal/h2", "internal/hpack"}, // for tests

	"tools/release": nil, // a command
	"tools/minutes": nil, // a command
	"tools/mutate":  nil, // a command

	"internal/driver":            {"buf", "internal/driver/ballast"},
	"internal/driver/ballast":    nil,
	"internal/driver/posix":      {"buf", "internal/driver", "internal/table"},
	"internal/driver/epoll":      {"internal/driver", "internal/driver/posix"},
	"internal/driver/kqueue":     {"internal/driver", "internal/driver/posix"},
	"internal/driver/std":        {"buf", "internal/driver"},
	"internal/driver/bound":      {"buf", "internal/driver"}, // for tests
	"internal/driver/sim":        {"buf", "internal/driver", "internal/driver/bound"},
	"internal/driver/drivertest": {"buf", "internal/driver", "internal/driver/sim"},

	".": {"buf", "internal/driver", "internal/driver/epoll", "internal/driver/kqueue", "internal/driver/std",
		"internal/bridge", "internal/parts", "internal/handoff", "internal/table", "internal/wheel"},
	"internal/enginetest": nil, // tests alone

	"debug":      {"."},
	"handover":   {".", "internal/driver"},
	"proxyproto": {".", "internal/pace"},
	"tlsloop":    {".", "buf", "internal/driver", "internal/pace"},

	"internal/dispatch":          {".", "internal/driver", "workers"},
	"internal/flow":              {"buf", "internal/driver"},
	"internal/outbox":            {".", "internal/driver"},
	"internal/outbox/outboxtest": {"internal/outbox"}, // for tests
	"internal/h1":                nil,
	"internal/hpack":             nil,
	"internal/h2":                {"internal/hpack"},
	"internal/mux":               {".", "buf", "internal/flow", "internal/h2", "internal/hpack", "internal/pace"},
	"internal/tunnel":            {".", "internal/h1"},

	"web/internal/exchange": {".", "buf", "internal/dispatch", "internal/driver", "internal/flow", "internal/h1",
		"internal/lifetime", "internal/parts", "internal/retryafter", "tlsloop", "workers"},
	"web/internal/http1": {".", "buf", "internal/dispatch", "internal/driver", "internal/h1", "internal/h2",
		"internal/pace", "internal/parts", "web/internal/exchange"},
	"web/internal/http2": {".", "buf", "internal/dispatch", "internal/flow", "internal/h1", "internal/h2",
		"internal/hpack", "internal/mux", "web/internal/exchange"},
	"web": {".", "buf", "internal/dispatch", "internal/driver", "internal/retryafter", "proxyproto", "tlsloop",
		"web/internal/exchange", "web/internal/http1", "web/internal/http2", "workers"},
	"websocket": {".", "buf", "internal/driver", "internal/h1", "internal/lifetime", "internal/dispatch",
		"internal/outbox", "internal/parts", "internal/tunnel", "tlsloop", "web", "workers"},

	"client": {".", "buf", "internal/driver", "internal/flow", "internal/h1", "internal/h2", "internal/hpack",
		"internal/mux", "internal/tunnel", "tlsloop"},

	"web/webtest": {".", "web", "websocket"}, // for users' tests

	"server/load": {".", "internal/h1", "internal/h2", "internal/hpack", "internal/mux", "tlsloop", "web",
		"websocket"},

	"resp/wire": nil,
	"resp": {".", "buf", "internal/driver", "internal/dispatch", "internal/outbox", "internal/parts", "resp/wire",
		"tlsloop", "workers"},

	"server/push/internal/centrifuge": nil,
	"server/push/internal/fossil":     nil,
	"server/push/internal/mercure":    nil,
	"server/push/internal/receipts":   nil,
	"server/push/internal/snapshot":   {"server/push/bus"},
	"server/push/internal/strict":     nil,
	"server/push/internal/prototest":  nil,                                       // for tests
	"server/push/internal/pushtest":   {"server/push/answer", "server/push/bus"}, // for tests
	"server/push/internal/servertest": {".", "buf", "server/push", "server/push/doors",
		"server/push/doors/centrifuge", "server/push/doors/mercure", "server/push/hub",
		"server/push/internal/pushtest", "server/push/internal/tokentest", "web"}, // for tests
	"server/push/internal/tokentest": nil, // for tests
	"server/push/token":              {"server/push/internal/strict"},
	"server/push/bus":                nil,
	"server/push/answer":             {"server/push/bus", "server/push/internal/centrifuge"},
	"server/push/policy": {"server/push/answer", "server/push/bus", "server/push/internal/snapshot",
		"server/push/token"},
	"server/push/membus": {"server/push/bus", "server/push/internal/receipts", "server/push/internal/snapshot"},
	"server/push": {".", "handover", "web", "server/push/answer", "server/push/bus", "server/push/guard",
		"server/push/hub",
		"server/push/internal/snapshot", "server/push/internal/strict", "server/push/membus", "server/push/policy",
		"server/push/token"},
	"server/push/api": {"server/push", "server/push/answer", "server/push/bus", "server/push/hub",
		"server/push/internal/centrifuge", "server/push/internal/strict"},
	"server/push/console": {".", "server/push", "server/push/answer", "server/push/bus", "server/push/hub",
		"server/push/policy"},
	"server/push/doors": {"server/push", "server/push/api", "server/push/console",
		"server/push/doors/centrifuge", "server/push/doors/mercure", "server/push/doors/redis",
		"server/push/doors/sse"},
	"server/push/doors/centrifuge": {"server/push/answer", "server/push/bus", "server/push/hub",
		"server/push/internal/centrifuge", "server/push/internal/fossil", "server/push/internal/snapshot",
		"server/push/policy", "web",
		"websocket"},
	"server/push/doors/mercure": {"server/push/answer", "server/push/bus", "server/push/hub",
		"server/push/internal/mercure", "server/push/internal/snapshot", "server/push/internal/strict",
		"server/push/policy", "server/push/token", "web"},
	"server/push/doors/redis": {".", "buf", "resp", "resp/wire", "server/push/answer", "server/push/bus",
		"server/push/hub", "server/push/internal/snapshot", "server/push/token"},
	"server/push/doors/sse": {"server/push/answer", "server/push/bus", "server/push/hub",
		"server/push/internal/snapshot", "web"},
	"server/push/bustest": {"server/push/bus"},
	"server/push/proxy":   {"server/push", "server/push/internal/strict"},
	"server/push/natsbus": {"server/push/bus", "server/push/internal/receipts"},
	"server/push/guard":   {"server/push/answer"},
	"server/push/hub": {".", "internal/outbox", "internal/retryafter", "server/push/answer",
		"server/push/bus", "server/push/guard", "server/push/internal/centrifuge", "server/push/internal/snapshot",
		"server/push/internal/strict", "server/push/membus", "server/push/policy", "server/push/token", "web",
		"websocket", "workers"},
	"server/cmd/myriad": {".", "debug", "handover", "internal/freeport", "resp", "server/load", "server/push",
		"server/push/bus", "server/push/doors", "server/push/doors/redis", "server/push/natsbus", "server/push/proxy",
		"web", "websocket"},
	"server/clients":     nil,
	"server/clustertest": nil, // tests alone
}

// unbound are the modules that show and measure: they may import everything that a user of the
// library may.
var unbound = []string{"bench", "examples", "others"}

// testSizes is the one internal package that the tests of these modules may import: it says how
// large a test is.
const testSizes = "internal/soak"

// foreign are the modules that the others may depend on, directly; tests included.
var foreign = map[string][]string{
	"": {"golang.org/x/sys", "golang.org/x/net", "github.com/klauspost/compress"},
	"server": {
		"github.com/BurntSushi/toml", "github.com/golang-jwt/jwt/v5", "github.com/prometheus/client_golang",
		"github.com/urfave/cli/v3", "google.golang.org/protobuf",
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go",
		"github.com/HdrHistogram/hdrhistogram-go", "github.com/wcharczuk/go-chart/v2", "golang.org/x/sys",
		"golang.org/x/term",
	},
	"tools": nil,
}

// codecs are the files of pure functions on bytes. Of the project they may import what codecMay
// lists, and nothing below codecForbids.
var codecs = []string{
	"internal/h1/*.go", "internal/h2/*.go", "internal/hpack/*.go", "internal/parts/*.go",
	"proxyproto/header.go", "proxyproto/append.go",
	"websocket/frame.go", "websocket/utf8.go", "websocket/handshake.go", "websocket/closecode.go",
	"websocket/extension.go", "websocket/deflate.go",
	"resp/wire/*.go",
	"server/push/internal/centrifuge/*.go", "server/push/internal/fossil/*.go",
	"server/push/internal/mercure/*.go",
}

var codecMay = []string{"buf", "internal/h1", "internal/hpack"}

// net/netip is not meant by "net": it is values alone, without a resolver or a socket.
var codecForbids = []string{"net", "time", "os", "context"}

// injected are the functions of the standard library that would give a run something that its seed
// does not decide. A whole package is forbidden by "*".
var injected = map[string][]string{
	"time":         {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"context":      {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	"math/rand":    {"*"},
	"math/rand/v2": {"*"},
}

// ownClock are the folders of the library that make time, chance and goroutines instead of being
// given them.
var ownClock = []string{"internal/driver", "internal/freeport", "internal/leaktest", "internal/outbox/outboxtest",
	"workers"}

// exceptions are complaints that are not made: by check and the name that it uses, with the reason.
var exceptions = map[string]string{
	"arrow bench/servers/websocket/memory.go bench/servers/websocket -> internal/driver": "upgrades are measured " +
		"without a kernel, on a driver that makes peers up",
	"arrow bench/servers/cluster/cluster_linux.go bench/servers/cluster -> internal/freeport": "its nodes must not " +
		"take the ports of clusters in tests, which run at the same time",
	"injection web/accept.go time.Sleep": "on the caller's goroutine, between two failing Accepts of a foreign " +
		"listener, which no simulation has",
}

// A source is one Go file.
type source struct {
	name string // from the root, with slashes
	text []byte
	fset *token.FileSet
	file *ast.File
}

func parseSource(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return &source{name, text, fset, file}, err
}

func (s *source) test() bool  { return strings.HasSuffix(s.name, "_test.go") }
func (s *source) dir() string { return path.Dir(s.name) }

// module is the folder of the source's module, "" for the library.
func (s *source) module() string {
	first, _, _ := strings.Cut(s.name, "/")
	if first == "server" || slices.Contains(unbound, first) {
		return first
	}
	return ""
}

func (s *source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

func within(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}

// A check returns complaints about one source: what it found, without the file's name.
type check func(s *source) []string

var checks = map[string]check{
	"arrow":     checkArrows,
	"foreign":   checkForeign,
	"codec":     checkCodec,
	"injection": checkInjection,
	"unsafe":    checkUnsafe,
	"directive": checkDirectives,
	"name":      checkNames,
	"column":    checkColumns,
	"word":      checkWords,
}

func checkArrows(s *source) (found []string) {
	allowed, known := arrows[s.dir()]
	outside := slices.Contains(unbound, s.module())
	switch {
	case s.test() && !outside:
		return nil
	case !known && !outside:
		return []string{"package " + s.dir() + " has no line in arrows"}
	}
	for _, p := range s.imports() {
		to, ours := project(p)
		forbidden := !slices.Contains(allowed, to)
		if outside {
			forbidden = slices.Contains(strings.Split(to, "/"), "internal") && !(s.test() && to == testSizes)
		}
		if ours && forbidden {
			found = append(found, s.dir()+" -> "+to)
		}
	}
	return found
}

// project is the package's name in arrows, if it is one of ours.
func project(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

func checkForeign(s *source) (found []string) {
	allowed, bound := foreign[s.module()]
	for _, p := range s.imports() {
		first, _, _ := strings.Cut(p, "/")
		if bound && strings.Contains(first, ".") && !within(p, append(allowed, modulePath)...) {
			found = append(found, "imports "+p)
		}
	}
	return found
}

func isCodec(s *source) bool {
	return !s.test() && slices.ContainsFunc(codecs, func(pattern string) bool {
		ok, _ := path.Match(pattern, s.name)
		return ok
	})
}

func checkCodec(s *source) (found []string) {
	if !isCodec(s) {
		return nil
	}
	for _, p := range s.imports() {
		if to, ours := project(p); ours && !slices.Contains(codecMay, to) || p != "net/netip" &&
			within(p, codecForbids...) {
			found = append(found, "a codec imports "+p)
		}
	}
	return found
}

func checkInjection(s *source) (found []string) {
	if s.test() || s.module() != "" || within(s.name, ownClock...) {
		return nil
	}
	names := map[string]string{} // of an import, in this file -> its path
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(injected[p], "*") {
			found = append(found, p)
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "go statement")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(injected[names[x.Name]], n.Sel.Name) {
				found = append(found, names[x.Name]+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

// lends is the one file above the drivers that may use unsafe: docs/adr/0015 says why.
const lends = "tlsloop/buffers.go"

func checkUnsafe(s *source) []string {
	if !s.test() && slices.Contains(s.imports(), "unsafe") && !within(s.name, "internal/driver") && s.name != lends {
		return []string{"imports unsafe"}
	}
	return nil
}

func checkDirectives(s *source) (found []string) {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			word, _, _ := strings.Cut(c.Text, " ")
			if word == "//go:norace" || word == "//go:linkname" {
				found = append(found, word)
			}
		}
	}
	return found
}

var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "pkg", "manager"}

func checkNames(s *source) (found []string) {
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSuffix(s.name, ".go"), "_test"), "/") {
		if slices.Contains(emptyNames, part) {
			found = append(found, part+" says nothing about what is in it")
		}
	}
	return found
}

const (
	maxColumns        = 120
	maxCommentColumns = 100
	tabColumns        = 4
)

// checkColumns complains of lines that are too wide to read beside another file. A line comment may
// hold one word that is wider, such as an address, and preformatted text as wide as code.
// Generated code is left as it is.
func checkColumns(s *source) (found []string) {
	if ast.IsGenerated(s.file) {
		return nil
	}
	for i, line := range strings.Split(string(s.text), "\n") {
		most := maxColumns
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "// ")
		if comment && strings.Contains(text, " ") && !strings.HasPrefix(text, " ") {
			most = maxCommentColumns
		}
		if n := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t"); n > most {
			found = append(found, fmt.Sprintf("line %d has %d columns, of at most %d", i+1, n, most))
		}
	}
	return found
}

// sources parses every Go file of the six modules, for whatever system it is.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" ||
			d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parseSource(filepath.ToSlash(name), text)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestArchitecture(t *testing.T) {
	unused := map[string]bool{}
	for name := range exceptions {
		unused[name] = true
	}
	for _, s := range sources(t) {
		for name, check := range checks {
			for _, complaint := range check(s) {
				key := name + " " + s.name + " " + complaint
				if exceptions[key] == "" {
					t.Errorf("%s: %s: %s", s.name, name, complaint)
				}
				delete(unused, key)
			}
		}
	}
	for name := range unused {
		t.Errorf("the exception %q is not needed any more", name)
	}
}

// Each check is fed a source that it must complain about, and one that it must not.
func TestChecksCanFail(t *testing.T) {
	for _, tt := range []struct {
		check, name, text string
		want              string // in the one complaint; empty: there must be none
	}{
		{"arrow", "buf/a.go", `import "github.com/myriad-go/myriad"`, "buf -> ."},
		{"arrow", "web/a.go", `import "github.com/myriad-go/myriad/websocket"`, "web -> websocket"},
		{"arrow", "web/a.go", `import "github.com/myriad-go/myriad/buf"`, ""},
		{"arrow", "web/a_test.go", `import "github.com/myriad-go/myriad/websocket"`, ""},
		{"arrow", "fresh/a.go", ``, "no line in arrows"},
		{"arrow", "bench/rivals/a.go", `import "github.com/myriad-go/myriad/web"`, ""},
		{"arrow", "bench/a_test.go", `import "github.com/myriad-go/myriad/internal/driver"`,
			"bench -> internal/driver"},
		{"arrow", "bench/a.go", `import "github.com/myriad-go/myriad/internal/soak"`, "bench -> internal/soak"},
		{"arrow", "bench/a_test.go", `import "github.com/myriad-go/myriad/internal/soak"`, ""},
		{"foreign", "web/a_test.go", `import "github.com/gin-gonic/gin"`, "gin"},
		{"foreign", "web/a.go", `import "golang.org/x/network"`, "network"},
		{"foreign", "web/a.go", `import "golang.org/x/net/http/httpguts"`, ""},
		{"foreign", "server/push/a.go", `import "golang.org/x/tools/go/packages"`, "x/tools"},
		{"foreign", "examples/gin/a.go", `import "github.com/gin-gonic/gin"`, ""},
		{"codec", "internal/h1/a.go", `import "net/http"`, "net/http"},
		{"codec", "proxyproto/header.go", `import "net/netip"`, ""},
		{"codec", "proxyproto/append.go", `import "net"`, "net"},
		{"codec", "websocket/frame.go", `import "time"`, "time"},
		{"codec", "websocket/utf8.go", `import "github.com/myriad-go/myriad"`, "myriad"},
		{"codec", "websocket/frame.go", `import "github.com/myriad-go/myriad/buf"`, ""},
		{"codec", "websocket/conn.go", `import "time"`, ""},
		{"injection", "conn.go", `import "time"; var x = time.Now()`, "time.Now"},
		{"injection", "web/a.go", `import clock "time"; var x = clock.AfterFunc`, "time.AfterFunc"},
		{"injection", "web/a.go", `import "math/rand/v2"; var x = rand.Int()`, "math/rand/v2"},
		{"injection", "web/a.go", `func f() { go f() }`, "go statement"},
		{"injection", "web/a.go", `import "time"; var x = time.Second`, ""},
		{"injection", "web/a_test.go", `import "time"; var x = time.Now()`, ""},
		{"injection", "workers/a.go", `func f() { go f() }`, ""},
		{"injection", "internal/driver/epoll/a.go", `func f() { go f() }`, ""},
		{"injection", "internal/drivers/a.go", `func f() { go f() }`, "go statement"},
		{"unsafe", "buf/a.go", `import "unsafe"`, "unsafe"},
		{"unsafe", "server/push/a.go", `import "unsafe"`, "unsafe"},
		{"unsafe", "internal/driver/epoll/a.go", `import "unsafe"`, ""},
		{"unsafe", lends, `import "unsafe"`, ""},
		{"unsafe", "tlsloop/session.go", `import "unsafe"`, "unsafe"},
		{"directive", "internal/driver/a_test.go", "//go:norace\nfunc f() {}", "//go:norace"},
		{"directive", "bench/a.go", "import _ \"unsafe\"\n\n//go:linkname now time.now\nfunc now()", "//go:linkname"},
		{"directive", "buf/a.go", "//go:noinline\nfunc f() {}", ""},
		{"name", "web/util.go", ``, "util"},
		{"name", "web/common/a.go", ``, "common"},
		{"name", "web/utility.go", ``, ""},
		{"column", "web/a.go", "var x = 1" + strings.Repeat(" ", maxColumns), "columns, of at most 120"},
		{"column", "web/a.go", "\n// one " + strings.Repeat("x", maxCommentColumns-len("// one ")), ""},
		{"column", "web/a.go", "\n\t// one " + strings.Repeat("x", maxCommentColumns-len("// one ")),
			"line 2 has 104 columns, of at most 100"},
		{"column", "web/a.go", "\n// " + strings.Repeat("x", maxCommentColumns), ""},
	} {
		s, err := parseSource(tt.name, []byte("package a; "+tt.text+"\n"))
		if err != nil {
			t.Fatalf("%s %s: %v", tt.check, tt.name, err)
		}
		got := checks[tt.check](s)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s of %s %q: complaints %q, want one with %q", tt.check, tt.name, tt.text, got, tt.want)
		}
	}
}

// Every pattern of codecs must match something, or a renamed file would escape it.
func TestCodecsExist(t *testing.T) {
	for _, pattern := range codecs {
		if found, err := filepath.Glob(filepath.FromSlash(pattern)); err != nil || len(found) == 0 {
			t.Errorf("%s matches %d files: %v", pattern, len(found), err)
		}
	}
}

// The code map names every package, so that the table and the page change together.
func TestArchitecturePage(t *testing.T) {
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range arrows {
		if name != "." && !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/ARCHITECTURE.md does not name `%s`", name)
		}
		if _, err := os.Stat(name); err != nil {
			t.Errorf("arrows has a line for %s: %v", name, err)
		}
	}
}

// The life of a request, on the same page, is told with functions that there are.
func TestLifeOfARequest(t *testing.T) {
	functions := map[string]bool{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.test() {
				continue
			}
			name := s.file.Name.Name + "."
			if f.Recv != nil {
				ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
					if id, is := n.(*ast.Ident); is {
						name += id.Name + "."
					}
					return true
				})
			}
			functions[name+f.Name.Name] = true
		}
	}
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, life, _ := strings.Cut(string(page), "\n## The life of a request\n")
	life, _, _ = strings.Cut(life, "\n## ")
	told := toldFunction.FindAllStringSubmatch(life, -1)
	for _, name := range told {
		if !functions[name[1]] {
			t.Errorf("docs/ARCHITECTURE.md: there is no function %s", name[1])
		}
	}
	if len(told) < 80 {
		t.Errorf("docs/ARCHITECTURE.md tells the life of a request with %d functions", len(told))
	}
}

var toldFunction = regexp.MustCompile("`([a-z0-9]+(?:\\.[A-Za-z0-9]+)+)`")

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([a-z0-9.]+\.[a-z]+/\S+) v\S+(.*)$`)

// requirements are the modules that a go.mod names; foreign modules that only other modules need
// are not its choice.
func requirements(mod []byte) (direct []string) {
	for _, m := range requirement.FindAllSubmatch(mod, -1) {
		if !bytes.Contains(m[2], []byte("// indirect")) {
			direct = append(direct, string(m[1]))
		}
	}
	return direct
}

func TestRequirements(t *testing.T) {
	for folder, allowed := range foreign {
		mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requirements(mod) {
			if r != modulePath && !slices.Contains(allowed, r) {
				t.Errorf("%s/go.mod requires %s", folder, r)
			}
		}
	}
	got := requirements([]byte("require example.org/a v1.2.3\n\nrequire (\n\texample.org/b/v2 " +
		"v2.0.0\n\texample.org/c v0.1.0 // indirect\n)\n"))
	if want := []string{"example.org/a", "example.org/b/v2"}; !slices.Equal(got, want) {
		t.Errorf("requirements: got %v, want %v", got, want)
	}
}

// "make test" tests every module but bench, which has a target of its own, so that a newcomer's
// first tests compile no rival. Everything is compiled before.
func TestMakefileTestsEveryModule(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.ReadFile("go.work")
	if err != nil {
		t.Fatal(err)
	}
	tested := regexp.MustCompile(`(?m)^TESTED := (.*)$`).FindStringSubmatch(string(makefile))
	if tested == nil {
		t.Fatal("the Makefile has no line TESTED")
	}
	patterns := strings.Fields(tested[1])
	modules := regexp.MustCompile(`(?m)^\t(\.\S*)$`).FindAllStringSubmatch(string(work), -1)
	for _, m := range modules {
		if own := m[1] != "./bench"; slices.Contains(patterns, m[1]+"/...") != own {
			t.Errorf("the module %s of go.work: make test is to test it: %v", m[1], own)
		}
	}
	if len(modules) != len(patterns)+1 {
		t.Errorf("go.work has %d modules, and make test the patterns %q", len(modules), patterns)
	}
	recipe := func(target, want string) {
		pattern := `(?m)^` + regexp.QuoteMeta(target) + `\n(\t.*\n)*\t.*` + regexp.QuoteMeta(want)
		if !regexp.MustCompile(pattern).Match(makefile) {
			t.Errorf("%q does not run %q", target, want)
		}
	}
	recipe("test: compile", "$(LONGEST) $(TESTED)")
	recipe("compile:", "go list -test -export $(TESTED)")
	recipe("test-bench:", "go test $(LINKING) $(WAITING) -timeout 12m ./bench/...")
	ci, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?s)\nmake test-bench\n.*\nmake test\n$`).Match(ci) {
		t.Error(".ci/run does not run make test-bench, and make test behind it")
	}
}
