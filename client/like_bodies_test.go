package client

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// serving starts a server of HTTP/1, or of HTTP/2 without TLS. Connections that are left open do
// not hold up its end.
func serving(t *testing.T, over string, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	if over == overHTTP2 {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// speaking is an http.Transport for such a server.
func speaking(over string) *http.Transport {
	std := &http.Transport{}
	if over == overHTTP2 {
		std.Protocols = new(http.Protocols)
		std.Protocols.SetUnencryptedHTTP2(true)
	}
	return std
}

// sameAnswers asks both Transports, over HTTP/1 and HTTP/2, for the same and wants one result,
// which is not empty.
func sameAnswers(t *testing.T, ask func(t *testing.T, over string, rt http.RoundTripper) string) {
	for _, over := range []string{overHTTP1, overHTTP2} {
		t.Run(over, func(t *testing.T) {
			std := speaking(over)
			own := likeOf(t, std)
			want := ask(t, over, std)
			std.CloseIdleConnections()
			if got := ask(t, over, own); got != want || got == "" {
				t.Errorf("they differ\nhttp.Transport: %s\n     Transport: %s", want, got)
			}
		})
	}
}

// whole is a response in a few words.
func whole(rt http.RoundTripper, req *http.Request) string {
	r, err := rt.RoundTrip(req)
	if err != nil {
		return "error " + err.Error()
	}
	p, err := io.ReadAll(r.Body)
	r.Body.Close()
	return fmt.Sprintf("%d %q %v", r.StatusCode, p, err)
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

// What a compressed body is, whole, cut or broken, and what comes behind it, is the same to both.
func TestGzipLikeNetHTTP(t *testing.T) {
	broken := zipped("text")
	broken[len(broken)-6] ^= 1
	for name, body := range map[string][]byte{
		"whole": zipped("text"), "two members": append(zipped("one"), zipped("two")...), "cut": zipped("text")[:12],
		"garbage behind it": append(zipped("text"), "garbage"...), "zeros behind it": append(zipped("text"), 0, 0, 0),
		"no gzip": []byte("text"), "empty": nil, "broken": broken,
	} {
		t.Run(name, func(t *testing.T) {
			sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
				r, err := rt.RoundTrip(request(t, "GET", serving(t, over, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Encoding", "gzip")
					w.Write(body)
				}), nil))
				if err != nil {
					return err.Error()
				}
				p, err := io.ReadAll(r.Body)
				_, again := r.Body.Read(make([]byte, 1))
				closed := r.Body.Close()
				return fmt.Sprintf("%q, %v, %v, %v; %d bytes, uncompressed %v, %q, of gzip %v", p, err, again, closed,
					r.ContentLength, r.Uncompressed, r.Header["Content-Encoding"], errors.Is(err, gzip.ErrHeader) ||
						errors.Is(err, gzip.ErrChecksum))
			})
		})
	}
}

// A countedBody counts.
type countedBody struct {
	io.Reader
	closes atomic.Int32
	closed chan struct{} // behind the first Close
}

func (b *countedBody) Close() error {
	if b.closes.Add(1) == 1 {
		close(b.closed)
	}
	return nil
}

// A request's body is closed once, whatever happens to the request: answered, refused before it is
// sent, without a server, or cancelled.
func TestRequestBodiesAreClosedOnce(t *testing.T) {
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
		url := serving(t, over, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
		out := ""
		for name, change := range map[string]func(r *http.Request){
			"answered":     func(*http.Request) {},
			"of a length":  func(r *http.Request) { r.ContentLength = 4 },
			"unknown":      func(r *http.Request) { r.ContentLength = -1 },
			"GET":          func(r *http.Request) { r.Method = "GET" },
			"nil URL":      func(r *http.Request) { r.URL = nil },
			"nil Header":   func(r *http.Request) { r.Header = nil },
			"odd method":   func(r *http.Request) { r.Method = "A B" },
			"odd scheme":   func(r *http.Request) { r.URL.Scheme = "x" },
			"odd field":    func(r *http.Request) { r.Header["a b"] = []string{"x"} },
			"odd URL":      func(r *http.Request) { r.URL.RawQuery = "\n" },
			"no host":      func(r *http.Request) { r.URL.Host = "" },
			"no server":    func(r *http.Request) { r.URL.Host = "127.0.0.1:1" },
			"too long":     func(r *http.Request) { r.ContentLength = 2 },
			"ended before": func(r *http.Request) { *r = *r.WithContext(endedContext()) },
		} {
			b := &countedBody{Reader: strings.NewReader("text"), closed: make(chan struct{})}
			req := request(t, "POST", url, nil)
			req.Body = b
			change(req)
			if r, err := rt.RoundTrip(req); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			select {
			case <-b.closed:
			case <-time.After(patience):
				t.Errorf("%s: it is not closed", name)
			}
			if n := b.closes.Load(); n != 1 {
				out += fmt.Sprintf("%s: %d times; ", name, n)
			}
		}
		return "once" + out
	})
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Through http.Client: redirects of all kinds keep or drop body and method, cookies are set on the
// way, and user information of the URL is not lost.
func TestRedirectsLikeNetHTTP(t *testing.T) {
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) (out string) {
		url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			code := 0
			if fmt.Sscanf(r.URL.Path, "/%d", &code); code != 0 {
				http.SetCookie(w, &http.Cookie{Name: "code", Value: fmt.Sprint(code)})
				http.Redirect(w, r, "/end", code)
				return
			}
			fmt.Fprintf(w, "%s %q %d %q %q", r.Method, body, r.ContentLength, r.Header["Authorization"],
				r.Header["Cookie"])
		})
		jar, _ := cookiejar.New(nil)
		c := &http.Client{Transport: rt, Jar: jar}
		for _, code := range []int{301, 302, 303, 307, 308} {
			for _, method := range []string{"GET", "POST", "HEAD", "PUT"} {
				for _, body := range []io.Reader{nil, strings.NewReader("text"), &trickle{"text"}} {
					from := strings.Replace(url, "http://", "http://user:secret@", 1) + fmt.Sprint("/", code)
					r, err := c.Do(request(t, method, from, body))
					if err != nil {
						out += strings.ReplaceAll(err.Error(), url, "") + "; "
						continue
					}
					p, err := io.ReadAll(r.Body)
					r.Body.Close()
					out += fmt.Sprintf("%d %s %T: %d %s %v; ", code, method, body, r.StatusCode, p, err)
				}
			}
		}
		return out
	})
}

// Both directions of an exchange go on at the same time. Each byte of the answer may depend on one
// of the request.
func TestDuplexLikeNetHTTP(t *testing.T) {
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
		url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			c.EnableFullDuplex()
			c.Flush()
			p := make([]byte, 64<<10)
			for {
				n, err := r.Body.Read(p)
				w.Write(p[:n])
				if c.Flush(); err != nil {
					return
				}
			}
		})
		out, in := io.Pipe()
		r, err := rt.RoundTrip(request(t, "POST", url, out))
		if err != nil {
			return err.Error()
		}
		text := ""
		for _, c := range []byte("hello") {
			in.Write([]byte{c})
			p := make([]byte, 1)
			io.ReadFull(r.Body, p)
			text += string(p)
		}
		in.Close()
		_, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err.Error()
		}
		if r, err = rt.RoundTrip(request(t, "POST", url, strings.NewReader(strings.Repeat("x", 8<<20)))); err != nil {
			return err.Error()
		}
		n, err := io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return fmt.Sprint(text, n, err)
	})
}

// A response that the caller closes ends a request that still waits for its body.
func TestClosedResponseEndsTheUpload(t *testing.T) {
	sameAnswers(t, func(t *testing.T, over string, rt http.RoundTripper) string {
		end := make(chan struct{})
		defer close(end)
		url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			c.EnableFullDuplex()
			c.Flush()
			<-end
		})
		out, in := io.Pipe()
		r, err := rt.RoundTrip(request(t, "POST", url, out))
		if err != nil {
			return err.Error()
		}
		r.Body.Close()
		written := make(chan error, 1)
		go func() {
			_, err := io.WriteString(in, "text")
			for err == nil {
				_, err = io.WriteString(in, "text")
			}
			written <- err
		}()
		select {
		case err = <-written:
			return err.Error()
		case <-time.After(patience):
			return ""
		}
	})
}

// A body whose Read hangs is closed when its request is over, which ends the Read. Over HTTP/1
// http.Transport waits for the Read.
func TestClosedResponseEndsAHungRead(t *testing.T) {
	for _, over := range []string{overHTTP1, overHTTP2} {
		t.Run(over, func(t *testing.T) {
			end := make(chan struct{})
			defer close(end)
			url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				c.EnableFullDuplex()
				c.Flush()
				<-end
			})
			h2 := new(http.Protocols)
			h2.SetUnencryptedHTTP2(over == overHTTP2)
			h2.SetHTTP1(over == overHTTP1)
			body := &hungBody{reads: make(chan struct{}), closed: make(chan struct{})}
			r, err := likeOf(t, &http.Transport{Protocols: h2}).RoundTrip(request(t, "POST", url, body))
			if err != nil {
				t.Fatal(err)
			}
			<-body.reads
			r.Body.Close()
			select {
			case <-body.closed:
			case <-time.After(patience):
				t.Error("the body is not closed")
			}
		})
	}
}

// A request's body whose Close takes long holds up neither its response nor other requests.
func TestSlowCloseHoldsUpNothing(t *testing.T) {
	for _, over := range []string{overHTTP1, overHTTP2} {
		t.Run(over, func(t *testing.T) {
			url := serving(t, over, func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).EnableFullDuplex()
			})
			h2 := new(http.Protocols)
			h2.SetUnencryptedHTTP2(over == overHTTP2)
			h2.SetHTTP1(over == overHTTP1)
			tr := likeOf(t, &http.Transport{Protocols: h2})
			free := make(chan struct{})
			defer close(free)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			body := &slowlyClosed{strings.NewReader("text"), free}
			r, err := tr.RoundTrip(request(t, "POST", url, body).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			for range 5 {
				fetch(t, tr, request(t, "GET", url, nil).WithContext(ctx))
			}
		})
	}
}

// A slowlyClosed body is closed when free is.
type slowlyClosed struct {
	io.Reader
	free chan struct{}
}

func (b *slowlyClosed) Close() error {
	<-b.free
	return nil
}

// A hungBody gives nothing until it is closed.
type hungBody struct {
	once          sync.Once
	reads, closed chan struct{}
}

func (b *hungBody) Read([]byte) (int, error) {
	b.once.Do(func() { close(b.reads) })
	<-b.closed
	return 0, io.ErrClosedPipe
}

func (b *hungBody) Close() error {
	close(b.closed)
	return nil
}

// A server may answer a request before it has read it, and close: the response comes whole.
func TestAnswerBeforeTheUploadEnds(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"memory": func() io.Reader { return bytes.NewReader(make([]byte, 10<<20)) },
		"reader": func() io.Reader { return &trickle{strings.Repeat("x", 10<<20)} },
	} {
		std := &http.Transport{}
		defer std.CloseIdleConnections()
		for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
			for range 5 {
				read := make(chan struct{})
				url := scripted(t, func(c net.Conn, r *bufio.Reader) {
					readHead(r)
					io.WriteString(c, "HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
					<-read
				})
				got := whole(rt, request(t, "POST", url, body()))
				if close(read); got != `413 "no" <nil>` {
					t.Errorf("%s, %s: %s", of, name, got)
				}
			}
		}
	}
}

// What DialContext has made is not what GotConn is given.
func TestTraceHasTheEnginesConn(t *testing.T) {
	type own struct{ net.Conn }
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 204 None\r\n\r\n")
	})
	tr := fresh(t, &Transport{DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		return own{c}, err
	}})
	var got net.Conn
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { got = info.Conn },
	})
	r, err := tr.RoundTrip(request(t, "GET", url, nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if _, is := got.(*myriad.Conn); !is {
		t.Errorf("GotConn is given a %T", got)
	}
}
