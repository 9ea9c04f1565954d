package exchange

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFoldedPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/":                  "/",
		"/users":             "/users",
		"/users/":            "/users/",
		"/users/17":          "/users/*",
		"/users/17/":         "/users/*/",
		"/users/17/posts/04": "/users/*/posts/*",
		"/v1/users":          "/v1/users",
		"/api/v2/x86":        "/api/v2/x86",
		"/o/550e8400-e29b-41d4-a716-446655440000": "/o/*",
		"/o/DEADBEEF01":                 "/o/*",
		"/o/deadbeef":                   "/o/deadbeef", // a word, for all that can be seen
		"/o/cafe1":                      "/o/cafe1",
		"/o/01ARZ3NDEKTSV4RRFFQ69G5FAV": "/o/*",
		"/o/dQw4w9WgXcQ_aBcDeFg":        "/o/*",
		"/static/app.3f2a1b9c.js":       "/static/app.3f2a1b9c.js",
		"2024":                          "*",
		"":                              "",
	} {
		got, folded := appendFolded([]byte("GET "), path)
		if string(got) != "GET "+want || folded != (path != want) {
			t.Errorf("%q: %q (%v), want %q", path, got, folded, want)
		}
	}
}

func routeOf(t *Routes, method, target string) *route {
	return t.of(httptest.NewRequest(method, target, nil))
}

func TestRoutesByPath(t *testing.T) {
	var rs Routes
	users := routeOf(&rs, "GET", "/users/1")
	for i := range 10_000 {
		if routeOf(&rs, "GET", fmt.Sprintf("/users/%d?q=%d", i, i)) != users {
			t.Fatalf("user %d has a route of its own", i)
		}
	}
	if routeOf(&rs, "POST", "/users/1") == users || routeOf(&rs, "GET", "/users") == users {
		t.Error("another method or path has the same route")
	}
	if len(rs.byKey) != 3 {
		t.Errorf("%d routes, want 3", len(rs.byKey))
	}
	if routeOf(&rs, "GET", "/"+string(make([]byte, 0, maxRouteKey))+fmt.Sprintf("%0*d", maxRouteKey, 1)) != nil {
		t.Error("a path that is too long has a route")
	}
}

func TestRoutesByPattern(t *testing.T) {
	mux := http.NewServeMux()
	for _, p := range []string{"GET /names/{name}", "/tree/", "/files/{path...}", "/plain"} {
		mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
	}
	rs := Routes{Mux: mux}
	if routeOf(&rs, "GET", "/names/alice") != routeOf(&rs, "GET", "/names/bob") {
		t.Error("two names that one pattern matches are two routes")
	}
	for _, pair := range [][2]string{{"/tree/a", "/tree/b"}, {"/files/a", "/files/b/c"}, {"/plain", "/none"},
		{"/names/alice", "/plain"}} {
		if routeOf(&rs, "GET", pair[0]) == routeOf(&rs, "GET", pair[1]) {
			t.Errorf("%s and %s are one route", pair[0], pair[1])
		}
	}
}

// A full table continues with what it has, and forgets routes without requests.
func TestRoutesFull(t *testing.T) {
	var rs Routes
	name := func(i int) string { return fmt.Sprintf("/x%dx", i) }
	for i := range maxRoutes {
		if routeOf(&rs, "GET", name(i)) == nil {
			t.Fatalf("no room for route %d", i)
		}
	}
	if routeOf(&rs, "GET", "/stranger") != nil {
		t.Fatal("a route too many")
	}
	kept := routeOf(&rs, "GET", name(0))
	for range maxRoutes {
		routeOf(&rs, "GET", "/stranger")
	}
	if routeOf(&rs, "GET", "/stranger") == nil || len(rs.byKey) > maxRoutes {
		t.Errorf("a stranger that comes again and again finds no room among %d", len(rs.byKey))
	}
	if routeOf(&rs, "GET", name(0)) != kept {
		t.Error("a route that is asked for was forgotten")
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, path := range []string{"/", "/api/articles", "/api/users/1234/posts"} {
		b.Run(path, func(b *testing.B) {
			var rs Routes
			r := httptest.NewRequest("GET", path, nil)
			b.ReportAllocs()
			for b.Loop() {
				rs.of(r)
			}
		})
	}
}

// BenchmarkRoutes is what DispatchAuto pays to find a route that it knows.
func BenchmarkRoutes(b *testing.B) {
	for name, target := range map[string]func(i int) string{
		"one":      func(int) string { return "/" },
		"thousand": func(i int) string { return fmt.Sprintf("/pages/%c%c%c/of", 'a'+i%10, 'a'+i/10%10, 'a'+i/100%10) },
		"ids":      func(i int) string { return fmt.Sprintf("/users/%d/posts", i) },
	} {
		b.Run(name, func(b *testing.B) {
			var rs Routes
			requests := make([]*http.Request, 1000)
			for i := range requests {
				requests[i] = httptest.NewRequest("GET", target(i), nil)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				rs.of(requests[i%len(requests)])
			}
		})
	}
}
