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
	"strings"
	"testing"
)

// A Go snippet is a whole program or a part of one. For a part, around declares the names that it
// uses.
const around = `package snippet
import ("context"; "crypto/tls"; "fmt"; "io"; "iter"; "log"; "net"; "net/http"; "net/http/httputil"; "net/netip"
	"net/url"; "os"; "os/signal"; "syscall"; "time"
	"github.com/myriad-go/myriad"; "github.com/myriad-go/myriad/client"; "github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/tlsloop"
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
type userKey struct{}
func login(http.Handler) http.Handler
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

// quotesProgram reports whether a snippet is a part of examples/frames or examples/rooms. Tests of
// those examples compare the two.
func quotesProgram(b block) bool {
	of := strings.HasPrefix(b.at, "docs/guides/protocol.md:") || strings.HasPrefix(b.at, "docs/guides/rooms.md:")
	return of && !strings.HasPrefix(b.text, "package ")
}

func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		"github.com/myriad-go/myriad/...", "context", "fmt", "log", "io", "iter", "net", "net/http/httptest",
		"net/http/httputil", "net/netip", "net/url",
		"os/signal",
		"syscall", "testing", "time")
	list.Dir = repository
	lines, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser,
		error) {
		return os.Open(exports[path])
	})
	found := 0
	for _, b := range documented(t) {
		if b.language != "go" || quotesProgram(b) {
			continue
		}
		found++
		file, err := parser.ParseFile(files, b.at, whole(b.text), parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v in\n%s", b.at, err, whole(b.text))
			continue
		}
		check := types.Config{Importer: imports, Error: func(err error) {
			// a snippet may have unused names
			if wrong := (types.Error{}); !errors.As(err, &wrong) || !wrong.Soft {
				t.Errorf("%s: %v in\n%s", b.at, err, whole(b.text))
			}
		}}
		_, _ = check.Check("snippet", files, []*ast.File{file}, nil) // Error has been told
	}
	if found < 8 {
		t.Errorf("only %d snippets were found", found)
	}
}
