package mercure

import (
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }

// The header has the id of the last event if there is one, because an EventSource sends it when it
// reconnects to an address with an older one.
func TestLastEventID(t *testing.T) {
	for _, tt := range []struct{ query, header, want string }{
		{"", "", ""},
		{"?lastEventID=a", "", "a"},
		{"?Last-Event-ID=b", "", "b"},
		{"?lastEventID=a&Last-Event-ID=b", "", "a"},
		{"?lastEventID=&Last-Event-ID=b", "", "b"},
		{"?lastEventID=a", "c", "c"},
	} {
		r := httptest.NewRequest("GET", hubPath+tt.query, nil)
		if tt.header != "" {
			r.Header.Set("Last-Event-ID", tt.header)
		}
		if got := lastEventID(r, r.URL.Query()); got != tt.want {
			t.Errorf("%q with %q: %q, want %q", tt.query, tt.header, got, tt.want)
		}
	}
}

// A token comes in Authorization, else in the query, else in the cookie, which any page makes a
// browser send.
func TestTokenOf(t *testing.T) {
	for _, tt := range []struct {
		query, authorization, cookie, want string
		isCookie                           bool
	}{
		{"", "", "", "", false},
		{"?authorization=q", "", "c", "q", false},
		{"?authorization=q", "Bearer h", "c", "h", false},
		{"", "Basic h", "c", "c", true},
		{"", "bearer  h ", "", "h", false},
	} {
		r := httptest.NewRequest("GET", hubPath+tt.query, nil)
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		if tt.cookie != "" {
			r.Header.Set("Cookie", cookieName+"="+tt.cookie)
		}
		if got, isCookie := tokenOf(r); got != tt.want || isCookie != tt.isCookie {
			t.Errorf("%+v: %q, %t", tt, got, isCookie)
		}
	}
}
