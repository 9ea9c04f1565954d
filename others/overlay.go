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
	o := &overlay{Replace: map[string]string{}}
	for _, in := range insertions {
		path := filepath.Join(within, in.file)
		if err := o.insert(path, filepath.Join(dir, "net_http_"+in.file), in.anchor, in.text); err != nil {
			return nil, err
		}
	}
	return o, o.put(filepath.Join(within, "others.go"), filepath.Join(dir, "net_http_others.go"), addition)
}

// insert puts text behind an anchor in path, which may have been changed before.
func (o *overlay) insert(path, file, anchor, text string) error {
	from := path
	if changed, ok := o.Replace[path]; ok {
		from = changed
	}
	p, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if n := strings.Count(string(p), anchor); n != 1 {
		return fmt.Errorf("%s has %q %d times and not once: adapt overlay.go", path, anchor, n)
	}
	return o.put(path, file, strings.Replace(string(p), anchor, anchor+text, 1))
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
func (o *overlay) link(one pkg, dir string) error {
	text := fmt.Sprintf("package %s_test\n\nimport _ %q\n", one.Name, module+"/hook")
	file := filepath.Join(dir, "link_"+flat(one.ImportPath)+".go")
	return o.put(filepath.Join(one.Dir, "zz_others_test.go"), file, text)
}

// inRealTime is testing/synctest without bubbles.
//
//go:embed overlay/synctest.go.txt
var inRealTime string

// realTime has the tests of one run in real time. Those of the Go release may import the internal
// package in place of testing/synctest.
func (o *overlay) realTime(goroot string, one pkg, dir string) error {
	path := filepath.Join(goroot, "src", "testing", "synctest", "synctest.go")
	if err := o.put(path, filepath.Join(dir, "synctest.go"), inRealTime); err != nil {
		return err
	}
	tests, err := filepath.Glob(filepath.Join(one.Dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, path := range tests {
		p, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.Replace(string(p), `"internal/synctest"`, `"testing/synctest"`, 1)
		if text == string(p) {
			continue
		}
		file := filepath.Join(dir, flat(one.ImportPath)+"_"+filepath.Base(path))
		if err := o.put(path, file, text); err != nil {
			return err
		}
	}
	return nil
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
