package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// addition is the file that the overlay adds to net/http: the variables, and what asks them.
//
//go:embed overlay/nethttp.go.txt
var addition string

// An insertion puts text behind an anchor, which is a piece of a file of net/http.
type insertion struct{ file, anchor, text string }

// The substitutes, as addition calls them: made if need be, or only if there are any.
const (
	serve   = "s.othersServe()"
	served  = "s.othersServed()"
	tripped = "t.othersTripped()"
)

// insertions have the methods of http.Server and http.Transport ask the variables first.
var insertions = []insertion{
	{"server.go", "\tonShutdown []func()\n\n\tlistenerGroup sync.WaitGroup\n", "\tothers othersServer\n"},
	{"server.go", "func (s *Server) Close() error {\n", give(served, "Close()")},
	{"server.go", "func (s *Server) Shutdown(ctx context.Context) error {\n", give(served, "Shutdown(ctx)")},
	{"server.go", "func (s *Server) RegisterOnShutdown(f func()) {\n", pass(served, "RegisterOnShutdown(f)")},
	{"server.go", "func (s *Server) SetKeepAlivesEnabled(v bool) {\n", pass(served, "SetKeepAlivesEnabled(v)")},
	{"server.go", "func (s *Server) ListenAndServe() error {\n", unwatched(give(serve, "ListenAndServe()"))},
	{
		"server.go", "func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {\n",
		unwatched(give(serve, "ListenAndServeTLS(certFile, keyFile)")),
	},
	{"server.go", "\t\tfn(s, l) // call hook with unwrapped listener\n\t}\n", give(serve, "Serve(l)")},
	{
		"server.go", "func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {\n",
		"\tif fn := testHookServerServe; fn != nil && OthersServer != nil {\n\t\tfn(s, l)\n\t}\n" +
			give(serve, "ServeTLS(l, certFile, keyFile)"),
	},
	{"transport.go", "type Transport struct {\n", "\tothers othersTransport\n\n"},
	{
		"transport.go", "\tt.tlsNextProtoWasNil = (t.TLSNextProto == nil)\n",
		"\tif OthersTransport != nil && !othersBubble() {\n\t\treturn\n\t}\n",
	},
	{
		"transport.go", "\tnewMap[scheme] = rt\n\tt.altProto.Store(newMap)\n",
		"\tif to := t.othersTripped(); to != nil {\n\t\tto.RegisterProtocol(scheme, rt)\n\t}\n",
	},
	{"transport.go", "func (t *Transport) CloseIdleConnections() {\n", pass(tripped, "CloseIdleConnections()")},
	{"transport.go", "func (t *Transport) CancelRequest(req *Request) {\n", pass(tripped, "CancelRequest(req)")},
	{"roundtrip.go", "\t\tpanic(\"transport is nil\")\n\t}\n", give("t.othersTrip()", "RoundTrip(req)")},
}

// give is code that returns what a method of the substitute returns, if there is a substitute.
func give(substitute, method string) string {
	return fmt.Sprintf("\tif to := %s; to != nil {\n\t\treturn to.%s\n\t}\n", substitute, method)
}

// pass is give for a method without results.
func pass(substitute, method string) string {
	return fmt.Sprintf("\tif to := %s; to != nil {\n\t\tto.%s\n\t\treturn\n\t}\n", substitute, method)
}

// unwatched has the code run unless a test of net/http wants to see the listener.
func unwatched(code string) string { return "\tif testHookServerServe == nil {\n" + code + "\t}\n" }

// An overlay is the file that go test -overlay reads.
type overlay struct{ Replace map[string]string }

// newOverlay writes the changed files of net/http into dir. It makes them from those of goroot.
func newOverlay(goroot, dir string) (*overlay, error) {
	within := filepath.Join(goroot, "src", "net", "http")
	texts := map[string]string{"others.go": addition}
	for _, in := range insertions {
		text, ok := texts[in.file]
		if !ok {
			p, err := os.ReadFile(filepath.Join(within, in.file))
			if err != nil {
				return nil, err
			}
			text = string(p)
		}
		if n := strings.Count(text, in.anchor); n != 1 {
			return nil, fmt.Errorf("%s of this Go release has %q %d times and not once: adapt insertions in overlay.go",
				in.file, in.anchor, n)
		}
		texts[in.file] = strings.Replace(text, in.anchor, in.anchor+in.text, 1)
	}
	o := &overlay{Replace: map[string]string{}}
	for name, text := range texts {
		if err := o.put(filepath.Join(within, name), filepath.Join(dir, "net_http_"+name), text); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// put has the compiler read text in place of path. The text is kept in file.
func (o *overlay) put(path, file, text string) error {
	o.Replace[path] = file
	if old, err := os.ReadFile(file); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// link adds a file to the tests of one, which imports package hook. It belongs to the external test
// package, which may import everything.
func (o *overlay) link(p *program, one pkg, dir string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "package %s_test\n\nimport (\n\t_ %q\n", one.Name, module+"/hook")
	for _, path := range p.imports {
		fmt.Fprintf(&text, "\t%q\n", path)
	}
	text.WriteString(")\n")
	if p.setup != "" {
		fmt.Fprintf(&text, "\nfunc init() {\n\t%s\n}\n", p.setup)
	}
	file := filepath.Join(dir, "link_"+flat(one.ImportPath)+".go")
	return o.put(filepath.Join(one.Dir, "zz_others_test.go"), file, text.String())
}

// write puts the overlay itself into a file.
func (o *overlay) write(file string) error {
	p, err := json.MarshalIndent(o, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, p, 0o644)
}

// flat is a path as the name of a file.
func flat(path string) string { return strings.NewReplacer("/", "_", "@", "_").Replace(path) }
