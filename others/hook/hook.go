//go:build others

// Package hook puts web.Server behind every http.Server of a program, and client.Transport behind
// every http.Transport. It compiles only with the overlay of package others, which gives net/http
// the variables that are set here.
package hook

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/web"
)

func init() {
	http.OthersServer = func(from *http.Server) http.OthersServing {
		to := &web.Server{}
		copyFields(to, from)
		return to
	}
	http.OthersTransport = func(from *http.Transport) http.OthersTripper { return &tripper{from: from} }
}

// A tripper is the client.Transport of an http.Transport. If a field of that changes, which tests do
// between requests, it begins again with another one.
type tripper struct {
	from *http.Transport

	mu        sync.Mutex
	was       []any // the fields that last was made of
	last      *client.Transport
	all       []*client.Transport
	protocols map[string]http.RoundTripper
}

func (t *tripper) to() *client.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := fields(t.from)
	if t.last == nil || !slices.Equal(now, t.was) {
		t.was, t.last = now, &client.Transport{}
		copyFields(t.last, t.from)
		for scheme, rt := range t.protocols {
			t.last.RegisterProtocol(scheme, rt)
		}
		t.all = append(t.all, t.last)
	}
	return t.last
}

func (t *tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t.to().RoundTrip(r) }

func (t *tripper) RegisterProtocol(scheme string, rt http.RoundTripper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.protocols == nil {
		t.protocols = map[string]http.RoundTripper{}
	}
	t.protocols[scheme] = rt
	if t.last != nil {
		t.last.RegisterProtocol(scheme, rt)
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

// fields are the values of the exported fields, which can be compared.
func fields(of *http.Transport) (all []any) {
	v := reflect.ValueOf(of).Elem()
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

// copyFields sets the exported fields of to, which has all that from has, to those of from.
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
