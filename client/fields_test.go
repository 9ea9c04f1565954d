package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fieldTests show what each field of http.Transport does here.
var fieldTests = map[string]func(t *testing.T){
	"Proxy":                  TestProxies,
	"OnProxyConnectResponse": testProxyConnect,
	"ProxyConnectHeader":     testProxyConnect,
	"GetProxyConnectHeader":  testProxyConnect,
	"DialContext":            TestDialContext,
	"Dial":                   testDialers,
	"DialTLS":                testDialers,
	"DialTLSContext":         testDialers,
	"TLSClientConfig":        testNextProtos,
	"TLSHandshakeTimeout":    testTLSHandshakeTimeout,
	"DisableKeepAlives":      testIdleFields,
	"MaxIdleConns":           testIdleFields,
	"MaxIdleConnsPerHost":    testIdleFields,
	"IdleConnTimeout":        testIdleFields,
	"DisableCompression":     TestGzip,
	"MaxConnsPerHost":        TestMaxConnsPerHost,
	"ResponseHeaderTimeout":  TestResponseHeaderTimeout,
	"ExpectContinueTimeout":  TestExpectContinue,
	"TLSNextProto":           testNextProtos,
	"MaxResponseHeaderBytes": TestEndlessServers,
	"WriteBufferSize":        testClone, // no effect
	"ReadBufferSize":         testClone, // no effect
	"ForceAttemptHTTP2":      testNextProtos,
	"HTTP2":                  TestHTTP2Backpressure,
	"Protocols":              TestHTTP2,
}

// Each field of http.Transport is here with the same type, has a test, and stands with each setting
// of HTTP/2 and each method in docs/net-http.md.
func TestFieldsOfHTTPTransport(t *testing.T) {
	page, err := os.ReadFile("../docs/net-http.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := func(name string) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/net-http.md has nothing about %s", name)
		}
	}
	theirs, ours := reflect.TypeFor[http.Transport](), reflect.TypeFor[Transport]()
	for f := range theirs.Fields() {
		if !f.IsExported() {
			continue
		}
		documented(f.Name)
		if g, ok := ours.FieldByName(f.Name); !ok || g.Type != f.Type {
			t.Errorf("Transport has no field %s %s", f.Name, f.Type)
		}
		if fieldTests[f.Name] == nil {
			t.Errorf("no test of %s", f.Name)
		}
	}
	for f := range reflect.TypeFor[http.HTTP2Config]().Fields() {
		documented(f.Name)
	}
	for m := range reflect.TypeFor[*http.Transport]().Methods() {
		if _, ok := reflect.TypeFor[*Transport]().MethodByName(m.Name); !ok {
			documented(m.Name)
		}
	}
	for _, tt := range []struct {
		name string
		f    func(*testing.T)
	}{{"proxy", testProxyConnect}, {"dialers", testDialers}, {"ALPN", testNextProtos},
		{"handshake", testTLSHandshakeTimeout}, {"idle", testIdleFields}, {"clone", testClone}} {
		t.Run(tt.name, tt.f)
	}
}

// What is sent with CONNECT, and who sees the answer.
func testProxyConnect(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w,
			"x")
	}))
	defer s.Close()
	var got atomic.Pointer[http.Header]
	proxy := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(&r.Header)
		r.Header.Set("Proxy-Authorization", "Basic bWU6c2VjcmV0") // that forward wants
		forward(w, r)
	})
	refusal := errors.New("not this proxy")
	for name, tr := range map[string]*Transport{
		"fixed": {ProxyConnectHeader: http.Header{"X-Who": {"fixed"}}},
		"made": {ProxyConnectHeader: http.Header{"X-Who": {"fixed"}},
			GetProxyConnectHeader: func(_ context.Context, u *url.URL, target string) (http.Header, error) {
				if u.String() != proxy.URL || target != s.Listener.Addr().String() {
					t.Errorf("GetProxyConnectHeader(%s, %s)", u, target)
				}
				return http.Header{"X-Who": {"made"}}, nil
			}},
		"refused": {GetProxyConnectHeader: func(context.Context, *url.URL, string) (http.Header, error) {
			return nil, refusal
		}},
		"judged": {ProxyConnectHeader: http.Header{"X-Who": {"judged"}},
			OnProxyConnectResponse: func(_ context.Context, u *url.URL, asked *http.Request, r *http.Response) error {
				if u.String() != proxy.URL || asked.Header.Get("X-Who") != "judged" || r.StatusCode != 200 {
					t.Errorf("OnProxyConnectResponse(%s, %v, %v)", u, asked, r)
				}
				return refusal
			}},
	} {
		tr.Proxy, tr.TLSClientConfig = proxied(t, proxy.URL), trusting(s)
		r, err := fresh(t, tr).RoundTrip(request(t, "GET", s.URL, nil))
		if fails := name == "refused" || name == "judged"; fails != errors.Is(err, refusal) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			r.Body.Close()
		}
		if name != "refused" && got.Load().Get("X-Who") != name {
			t.Errorf("%s: the proxy got %v", name, *got.Load())
		}
	}
}

// The user's dialers are called for what they are there for, the newer before the older.
func testDialers(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w,
			"tls")
	}))
	defer s.Close()
	plain := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "plain") })
	var called []string
	noting := func(name string, secure bool) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			called = append(called, name)
			if secure {
				d := tls.Dialer{Config: trusting(s)}
				return d.DialContext(ctx, network, addr)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
	old := func(f func(context.Context, string, string) (net.Conn, error)) func(_, _ string) (net.Conn, error) {
		return func(network, addr string) (net.Conn, error) { return f(t.Context(), network, addr) }
	}
	for want, tr := range map[string]*Transport{
		"Dial DialTLS": {Dial: old(noting("Dial", false)), DialTLS: old(noting("DialTLS", true))},
		"DialContext DialTLSContext": {DialContext: noting("DialContext", false),
			DialTLSContext: noting("DialTLSContext", true)},
		"DialContext DialContext": {DialContext: noting("DialContext", false), Dial: old(noting("Dial", false)),
			TLSClientConfig: trusting(s)},
	} {
		called = nil
		fresh(t, tr)
		if _, body := get(t, tr, plain.URL); body != "plain" {
			t.Errorf("%s: %q", want, body)
		}
		if r, body := get(t, tr, s.URL); body != "tls" || r.TLS == nil {
			t.Errorf("%s: %q, TLS %v", want, body, r.TLS)
		}
		if got := strings.Join(called, " "); got != want {
			t.Errorf("called %s, want %s", got, want)
		}
	}
}

// Which protocol is spoken is the outcome of three fields and ALPN.
func testNextProtos(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto+" "+r.TLS.NegotiatedProtocol)
	}))
	s.EnableHTTP2, s.TLS = true, &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	s.StartTLS()
	defer s.Close()
	type functions = map[string]func(string, *tls.Conn) http.RoundTripper
	for name, tt := range map[string]struct {
		tr    *Transport
		users []string
		want  string
	}{
		"config":  {&Transport{}, nil, "HTTP/1.1 "},
		"forced":  {&Transport{ForceAttemptHTTP2: true}, nil, "HTTP/2.0 h2"},
		"off":     {&Transport{ForceAttemptHTTP2: true, TLSNextProto: functions{}}, nil, "HTTP/1.1 "},
		"h2":      {&Transport{TLSNextProto: functions{"h2": nil, "x": nil}}, nil, "HTTP/1.1 "},
		"on":      {&Transport{TLSNextProto: functions{"h2": unwanted(t)}}, nil, "HTTP/2.0 h2"},
		"their":   {&Transport{}, []string{"h2", "http/1.1"}, "HTTP/1.1 http/1.1"},
		"in turn": {&Transport{ForceAttemptHTTP2: true}, []string{"mine", "h2"}, "HTTP/2.0 h2"},
	} {
		tr := fresh(t, tt.tr)
		tr.TLSClientConfig = trusting(s)
		tr.TLSClientConfig.NextProtos = tt.users
		if _, body := get(t, tr, s.URL); body != tt.want {
			t.Errorf("%s: %q, want %q", name, body, tt.want)
		}
	}
}

func unwanted(t *testing.T) func(string, *tls.Conn) http.RoundTripper {
	return func(string, *tls.Conn) http.RoundTripper {
		t.Error("a function of TLSNextProto was called")
		return nil
	}
}

func testTLSHandshakeTimeout(t *testing.T) {
	silent := scripted(t, func(c net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	tr := fresh(t, &Transport{TLSHandshakeTimeout: 50 * time.Millisecond})
	_, err := byDo{tr}.RoundTrip(request(t, "GET", strings.Replace(silent, "http:", "https:", 1), nil))
	if e, ok := errors.AsType[*Error](err); !ok || e.Phase != Dialing || !e.Timeout() ||
		!strings.Contains(err.Error(), "TLS handshake timeout") {
		t.Errorf("%v", err)
	}
}

// testIdleFields counts the connections that two requests to each of two servers need.
func testIdleFields(t *testing.T) {
	var opened atomic.Int32
	var urls []string
	for range 2 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	for name, tt := range map[string]struct {
		tr   *Transport
		want int32
	}{
		"kept":                {&Transport{}, 2},
		"DisableKeepAlives":   {&Transport{DisableKeepAlives: true}, 4},
		"MaxIdleConns":        {&Transport{MaxIdleConns: 1}, 4},
		"MaxIdleConnsPerHost": {&Transport{MaxIdleConnsPerHost: -1}, 4},
		"IdleConnTimeout":     {&Transport{IdleConnTimeout: time.Millisecond}, 4},
	} {
		opened.Store(0)
		tr := fresh(t, tt.tr)
		for range 2 {
			for _, url := range urls {
				get(t, tr, url)
				if name == "IdleConnTimeout" {
					awaitNoIdle(t, tr)
				}
			}
		}
		if got := opened.Load(); got != tt.want {
			t.Errorf("%s: %d connections, want %d", name, got, tt.want)
		}
	}
}

func awaitNoIdle(t *testing.T, tr *Transport) {
	for t.Context().Err() == nil {
		tr.pool.mu.Lock()
		idle := tr.pool.idle
		tr.pool.mu.Unlock()
		if idle == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Clone copies every exported field.
func testClone(t *testing.T) {
	tr := &Transport{}
	v := reflect.ValueOf(tr).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			v.Field(i).Set(filled(t, f.Type))
		}
	}
	c := reflect.ValueOf(tr.Clone()).Elem()
	for i := range c.NumField() {
		if f := c.Type().Field(i); f.IsExported() && c.Field(i).IsZero() {
			t.Errorf("Clone leaves %s out", f.Name)
		}
	}
	if got := (&Transport{}).Clone(); got.TLSNextProto != nil || got.HTTP2 != nil || got.TLSClientConfig != nil {
		t.Errorf("the clone of a zero Transport is %+v", got)
	}
}

// filled is a value that is not the zero one.
func filled(t *testing.T, of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
	case reflect.Map:
		v.Set(reflect.MakeMap(of))
	case reflect.Func:
		v.Set(reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { return nil }))
	default:
		t.Fatalf("a field of type %s", of)
	}
	return v
}

// The Transport that docs/net-http.md shows has the fields of http.DefaultTransport.
func TestDefaultsOfDefaultTransport(t *testing.T) {
	shown := &Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: 1 * time.Second,
	}
	page, err := os.ReadFile("../docs/net-http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, _ := strings.Cut(string(page), "&client.Transport{\n")
	snippet, _, _ = strings.Cut(snippet, "}\n")
	source, err := os.ReadFile("fields_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(snippet) {
		if !strings.Contains(string(source), "\t"+line) {
			t.Errorf("the page has %q, and this test has not", line)
		}
	}
	ours, theirs := reflect.ValueOf(shown).Elem(), reflect.ValueOf(http.DefaultTransport).Elem()
	set := 0
	for i := range theirs.NumField() {
		f := theirs.Type().Field(i)
		value := ours.FieldByName(f.Name)
		switch {
		case !f.IsExported() || theirs.Field(i).IsZero():
			continue
		case f.Name == "DialContext": // it is the engine's; its timeout is that of net/http's, too
			continue
		case f.Name == "TLSNextProto" || f.Name == "TLSClientConfig" || f.Name == "Protocols" || f.Name == "HTTP2":
			continue // net/http sets them itself at the first request
		}
		set++
		same := value.IsValid() && !value.IsZero()
		if same && f.Type.Kind() == reflect.Func {
			same = value.Pointer() == theirs.Field(i).Pointer()
		} else if same {
			same = value.Interface() == theirs.Field(i).Interface()
		}
		if !same {
			t.Errorf("%s differs", f.Name)
		}
	}
	if lines := strings.Count(snippet, "\n"); set != lines {
		t.Errorf("http.DefaultTransport sets %d fields, the page %d", set, lines)
	}
}
