package web

import (
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
	muxed "github.com/myriad-go/myriad/web/internal/http2"
)

// What a request may touch. The figures only fall: what few requests need stands behind a pointer,
// and states that exclude each other are one enum.
const (
	touchedFields = 63
	touchedBools  = 9
)

// A request with a body touches the fields of few structs, and few of them are bools: a reader
// has to keep them in mind.
func TestRequestsTouchFewFields(t *testing.T) {
	for version, parts := range map[string][]reflect.Type{
		"HTTP/1": {reflect.TypeFor[http1.Stream](), reflect.TypeFor[exchange.Body](), reflect.TypeFor[http1.Decoder]()},
		"HTTP/2": {reflect.TypeFor[muxed.Stream](), reflect.TypeFor[exchange.Body]()},
	} {
		fields, bools := 0, 0
		for _, part := range parts {
			n, m := countFields(part)
			fields, bools = fields+n, bools+m
		}
		t.Logf("%s: %d fields, %d of them bools", version, fields, bools)
		if fields > touchedFields || bools > touchedBools {
			t.Errorf("%s: %d fields and %d bools, of at most %d and %d", version, fields, bools, touchedFields,
				touchedBools)
		}
	}
}

// countFields counts those of a struct. It counts the fields of a struct of this server in place
// of that.
func countFields(s reflect.Type) (fields, bools int) {
	for i := range s.NumField() {
		switch f := s.Field(i).Type; {
		case f.Kind() == reflect.Struct && strings.HasPrefix(f.PkgPath(), "github.com/myriad-go/myriad/web"):
			n, m := countFields(f)
			fields, bools = fields+n, bools+m
		case f.Kind() == reflect.Bool || f == reflect.TypeFor[atomic.Bool]():
			bools++
			fallthrough
		default:
			fields++
		}
	}
	return fields, bools
}
