package main

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A Go snippet is a whole program or a part of one. For a part, around declares the names that it
// uses.
const around = `package snippet
import ("context"; "crypto/tls"; "errors"; "fmt"; "io"; "iter"; "log"; "net"; "net/http"; "net/http/httputil"
	"net/netip"; "net/url"; "os"; "os/signal"; "syscall"; "time"
	"github.com/myriad-go/myriad"; "github.com/myriad-go/myriad/client"; "github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"; "github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/redis"; "github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/web"; "github.com/myriad-go/myriad/websocket")
var mux, handler = http.NewServeMux(), http.NotFoundHandler()
var certificates []tls.Certificate
var server = new(http.Server)
var ctx = context.Background()
var t *client.Transport
var target *url.URL
var req *http.Request
var requests iter.Seq[*http.Request]
var pusher *push.Server
var engine *myriad.Engine
var g *client.Group
func links(body []byte) []string
type userKey struct{}
func login(http.Handler) http.Handler
func operators(http.Handler) http.Handler
`

// whole turns a snippet into a file. Of a changed line it takes the new form, and it drops lines of
// dots. Statements are put into a function.
func whole(snippet string) string {
	snippet = regexp.MustCompile(`(?m)^(-.*|\s*…)\n`).ReplaceAllString(snippet, "")
	snippet = regexp.MustCompile(`(?m)^(\+|\t)\t?`).ReplaceAllString(snippet, "\t")
	if strings.HasPrefix(snippet, "package ") {
		return snippet
	}
	declarations := regexp.MustCompile(`(?ms)^(type|func|var) (\S[^\n]*\}$|\S[^\n]*[^{\n]$|.*?^\})`)
	return around + strings.Join(declarations.FindAllString(snippet, -1), "\n") + "\nfunc _() {\n" +
		declarations.ReplaceAllString(snippet, "") + "}\n"
}

// quotesProgram reports whether a snippet is a part of examples/frames, examples/rooms or
// examples/operated. Tests of those examples compare the two.
func quotesProgram(b block) bool {
	guide, _, _ := strings.Cut(strings.TrimPrefix(b.at, "docs/guides/"), ":")
	of := slices.Contains([]string{"protocol.md", "rooms.md", "program.md", "handover.md"}, guide)
	return of && !strings.HasPrefix(b.text, "package ")
}

// exportsOf returns where the compiler has exported the packages that snippets import. It fails the
// test if snippetimports_test.go does not import one of them.
func exportsOf(t *testing.T, files []*ast.File) map[string]string {
	t.Helper()
	own, err := parser.ParseFile(token.NewFileSet(), "snippetimports_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	known := len(args)
	for _, i := range own.Imports {
		args = append(args, strings.Trim(i.Path.Value, `"`))
	}
	for _, file := range files {
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); !slices.Contains(args[known:], path) {
				t.Errorf("a snippet imports %s: import it in snippetimports_test.go, too", path)
			}
		}
	}
	list := exec.Command("go", args...)
	list.Dir = repository
	var wrong strings.Builder
	list.Stderr = &wrong
	lines, err := list.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, &wrong)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return exports
}

func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	positions := token.NewFileSet()
	var files []*ast.File
	var blocks []block
	for _, b := range documented(t) {
		if b.language != "go" || quotesProgram(b) {
			continue
		}
		file, err := parser.ParseFile(positions, b.at, whole(b.text), parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v in\n%s", b.at, err, whole(b.text))
			continue
		}
		files, blocks = append(files, file), append(blocks, b)
	}
	exports := exportsOf(t, files)
	imports := importer.ForCompiler(positions, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for i, b := range blocks {
		check := types.Config{Importer: imports, Error: func(err error) {
			// a snippet may have unused names
			if wrong := (types.Error{}); !errors.As(err, &wrong) || !wrong.Soft {
				t.Errorf("%s: %v in\n%s", b.at, err, whole(b.text))
			}
		}}
		_, _ = check.Check("snippet", positions, []*ast.File{files[i]}, nil) // Error has been told
	}
	if len(blocks) < 8 {
		t.Errorf("only %d snippets were found", len(blocks))
	}
}
