package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// addition is what the overlay adds to net/http: the variables, and what calls them.
//
//go:embed overlay/nethttp.go.txt
var addition string

// An insertion puts text behind a piece of a file of net/http, its anchor, which must be there once.
type insertion struct{ file, anchor, text string }

// insertions make the methods of http.Server and http.Transport ask the variables first.
var insertions = []insertion{
	{"server.go", "\tonShutdown []func()\n\n\tlistenerGroup sync.WaitGroup\n", "\tothers othersServer\n"},
	{"server.go", "func (s *Server) Close() error {\n", call("othersServed", "Close()")},
	{"server.go", "func (s *Server) Shutdown(ctx context.Context) error {\n", call("othersServed", "Shutdown(ctx)")},
	{
		"server.go", "func (s *Server) RegisterOnShutdown(f func()) {\n",
		"\tif to := s.othersServed(); to != nil {\n\t\tto.RegisterOnShutdown(f)\n\t\treturn\n\t}\n",
	},
	{
		"server.go", "func (s *Server) SetKeepAlivesEnabled(v bool) {\n",
		"\tif to := s.othersServed(); to != nil {\n\t\tto.SetKeepAlivesEnabled(v)\n\t\treturn\n\t}\n",
	},
	{"server.go", "func (s *Server) ListenAndServe() error {\n", call("othersServe", "ListenAndServe()")},
	{
		"server.go", "func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {\n",
		call("othersServe", "ListenAndServeTLS(certFile, keyFile)"),
	},
	{"server.go", "\t\tfn(s, l) // call hook with unwrapped listener\n\t}\n", call("othersServe", "Serve(l)")},
	{
		"server.go", "func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {\n",
		call("othersServe", "ServeTLS(l, certFile, keyFile)"),
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
	{
		"transport.go", "func (t *Transport) CloseIdleConnections() {\n",
		"\tif to := t.othersTripped(); to != nil {\n\t\tto.CloseIdleConnections()\n\t\treturn\n\t}\n",
	},
	{
		"transport.go", "func (t *Transport) CancelRequest(req *Request) {\n",
		"\tif to := t.othersTripped(); to != nil {\n\t\tto.CancelRequest(req)\n\t\treturn\n\t}\n",
	},
	{
		"roundtrip.go", "\t\tpanic(\"transport is nil\")\n\t}\n",
		"\tif to := t.othersTrip(); to != nil {\n\t\treturn to.RoundTrip(req)\n\t}\n",
	},
}

// call is the text that returns what a method of our server returns, if there is one.
func call(have, method string) string {
	return fmt.Sprintf("\tif to := s.%s(); to != nil {\n\t\treturn to.%s\n\t}\n", have, method)
}

// An overlay is what go test -overlay reads.
type overlay struct{ Replace map[string]string }

// newOverlay writes the changed files of net/http into dir. They are made from the ones at hand, so
// that they are those of the Go release in use.
func newOverlay(goroot, dir string) (*overlay, error) {
	o := &overlay{Replace: map[string]string{}}
	within := filepath.Join(goroot, "src", "net", "http")
	texts := map[string]string{}
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
			return nil, fmt.Errorf("%s of this Go release has %q %d times, not once: adapt insertions in overlay.go",
				in.file, in.anchor, n)
		}
		texts[in.file] = strings.Replace(text, in.anchor, in.anchor+in.text, 1)
	}
	texts["others.go"] = addition
	for name, text := range texts {
		if err := o.put(filepath.Join(within, name), filepath.Join(dir, "net_http_"+name), text); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// put has the compiler read text, which it writes to file, where it would read path.
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

// link has the tests of a package import package hook.
func (o *overlay) link(p pkg, dir string) error {
	text := fmt.Sprintf("package %s_test\n\nimport _ %q\n", p.Name, module+"/hook")
	name := strings.NewReplacer("/", "_", ".", "_").Replace(p.ImportPath)
	return o.put(filepath.Join(p.Dir, "zz_others_test.go"), filepath.Join(dir, "link_"+name+".go"), text)
}

// write puts the overlay into a file.
func (o *overlay) write(file string) error {
	p, err := json.MarshalIndent(o, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, p, 0o644)
}
