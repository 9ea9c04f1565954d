//go:build others

package hook

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/web"
)

// usedEnv names the environment variable with the path of a file. It gets a byte for each server
// and each transport that is replaced, so that the command knows whether a program has any.
const usedEnv = "OTHERS_USED"

func init() {
	http.OthersServer = func(from *http.Server) http.OthersServing {
		use()
		to := &web.Server{}
		copyFields(to, from)
		serveHTTP2(to)
		return to
	}
	http.OthersTransport = func(from *http.Transport) http.OthersTripper {
		use()
		return &tripper{from: from}
	}
}

func use() {
	f, err := os.OpenFile(os.Getenv(usedEnv), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return // the binary runs by itself
	}
	defer f.Close()
	_, _ = f.Write([]byte{'.'})
}

// serveHTTP2 has s serve HTTP/2 itself where TLSNextProto asks net/http to, as in net/http's tests.
func serveHTTP2(s *web.Server) {
	f, ok := s.TLSNextProto["h2"]
	if !ok {
		return
	}
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	if !strings.HasPrefix(name, "net/http.http2ConfigureServer") {
		return
	}
	s.TLSNextProto = maps.Clone(s.TLSNextProto)
	delete(s.TLSNextProto, "h2")
	if s.Protocols == nil {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetHTTP2(true)
	}
}

// A tripper is the client.Transport of an http.Transport. If a field of that changes, as tests do
// between requests, it goes on with a new one.
type tripper struct {
	from *http.Transport

	mu        sync.Mutex
	fields    []any // of from, when current was made
	current   *client.Transport
	all       []*client.Transport
	protocols map[string]http.RoundTripper
}

func (t *tripper) transport() *client.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := fieldsOf(t.from); t.current == nil || !slices.Equal(now, t.fields) {
		t.fields, t.current = now, &client.Transport{}
		copyFields(t.current, t.from)
		for scheme, rt := range t.protocols {
			t.current.RegisterProtocol(scheme, rt)
		}
		t.all = append(t.all, t.current)
	}
	return t.current
}

func (t *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.transport().RoundTrip(r)
}

func (t *tripper) RegisterProtocol(scheme string, rt http.RoundTripper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.protocols == nil {
		t.protocols = map[string]http.RoundTripper{}
	}
	t.protocols[scheme] = rt
	if t.current != nil {
		t.current.RegisterProtocol(scheme, rt)
	}
}

func (t *tripper) CloseIdleConnections() {
	for _, to := range t.made() {
		to.CloseIdleConnections()
	}
}

func (t *tripper) CancelRequest(r *http.Request) {
	for _, to := range t.made() {
		to.CancelRequest(r)
	}
}

func (t *tripper) made() []*client.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// fieldsOf gives the values of the exported fields in a form that can be compared.
func fieldsOf(t *http.Transport) (all []any) {
	v := reflect.ValueOf(t).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		switch field := v.FieldByIndex(f.Index); {
		case !f.IsExported():
		case field.Kind() == reflect.Func || field.Kind() == reflect.Map:
			all = append(all, field.UnsafePointer())
		default:
			all = append(all, field.Interface())
		}
	}
	return all
}

// copyFields sets the exported fields of to that from has. to must have all of them.
func copyFields(to, from any) {
	dst, src := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, f := range reflect.VisibleFields(src.Type()) {
		if !f.IsExported() {
			continue
		}
		field := dst.FieldByName(f.Name)
		if !field.IsValid() {
			panic(fmt.Sprintf("others: %T has no field %s, which %T has", to, f.Name, from))
		}
		field.Set(src.FieldByIndex(f.Index))
	}
}
