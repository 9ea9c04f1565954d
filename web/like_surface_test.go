package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// This file has handlers as users write them, with what packages net/http and httputil offer them,
// under requests of many kinds.

// surface are such handlers, by pattern. What they note must be the same, too.
var surface = []struct {
	pattern string
	handle  func(w http.ResponseWriter, r *http.Request, notes *record)
}{
	{"/dump", func(w http.ResponseWriter, r *http.Request, notes *record) {
		b, err := httputil.DumpRequest(r, true)
		fmt.Fprintf(w, "%q %v\n", b, err)
		b2, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q %v %v\n", b2, err, r.Trailer)
	}},
	{"/form", func(w http.ResponseWriter, r *http.Request, notes *record) {
		err := r.ParseForm()
		fmt.Fprintf(w, "%v %v %v %q %q\n", err, r.Form, r.PostForm, r.FormValue("a"), r.PostFormValue("a"))
	}},
	{"/multi", func(w http.ResponseWriter, r *http.Request, notes *record) {
		f, h, err := r.FormFile("file")
		if err != nil {
			fmt.Fprintf(w, "err %v", err)
			return
		}
		b, _ := io.ReadAll(f)
		fmt.Fprintf(w, "%s %d %d %v %v", h.Filename, h.Size, len(b), h.Header, r.MultipartForm.Value)
		_, isFile := f.(*os.File)
		notes.add("on disk %t", isFile)
	}},
	{"/reader", func(w http.ResponseWriter, r *http.Request, notes *record) {
		mr, err := r.MultipartReader()
		if err != nil {
			fmt.Fprintf(w, "err %v", err)
			return
		}
		for {
			p, err := mr.NextPart()
			if err != nil {
				fmt.Fprintf(w, "end %v", err)
				return
			}
			b, err := io.ReadAll(p)
			fmt.Fprintf(w, "%s %d %v;", p.FormName(), len(b), err)
		}
	}},
	{"/cookies", func(w http.ResponseWriter, r *http.Request, notes *record) {
		for _, c := range r.Cookies() {
			fmt.Fprintf(w, "%s=%s;", c.Name, c.Value)
		}
		http.SetCookie(w, &http.Cookie{Name: "n", Value: "v w", Path: "/", HttpOnly: true,
			SameSite: http.SameSiteLaxMode})
		http.SetCookie(w, &http.Cookie{Name: "n2", Value: "v", MaxAge: -1, Secure: true})
	}},
	{"/setcookies", func(w http.ResponseWriter, r *http.Request, notes *record) {
		http.SetCookie(w, &http.Cookie{Name: "n", Value: "v w", Path: "/", HttpOnly: true,
			SameSite: http.SameSiteLaxMode})
		http.SetCookie(w, &http.Cookie{Name: "n2", Value: "v", MaxAge: -1, Secure: true})
		http.Redirect(w, r, "../x?y=z", http.StatusSeeOther)
	}},
	{"/error", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Cache-Control", "max-age=3")
		http.Error(w, "no <b>way", http.StatusTeapot)
	}},
	{"/auth", func(w http.ResponseWriter, r *http.Request, notes *record) {
		u, p, ok := r.BasicAuth()
		fmt.Fprint(w, u, p, ok, r.UserAgent(), r.Referer(), r.Proto, r.ProtoAtLeast(1, 1))
	}},
	{"GET /pat/{id}/{rest...}", func(w http.ResponseWriter, r *http.Request, notes *record) {
		fmt.Fprint(w, r.Pattern, r.PathValue("id"), r.PathValue("rest"))
	}},
	{"/clone", func(w http.ResponseWriter, r *http.Request, notes *record) {
		c := r.Clone(context.Background())
		fmt.Fprint(w, c.URL, c.Host, c.Header, c.ContentLength, c.TransferEncoding, c.Close, c.Form, c.Trailer,
			c.RemoteAddr != "", c.RequestURI, c.TLS, c.Response, c.Pattern)
	}},
	{"/afterclose", func(w http.ResponseWriter, r *http.Request, notes *record) {
		e1 := r.Body.Close()
		_, err := r.Body.Read(make([]byte, 1))
		notes.add("%v %v %t %v", e1, err, errors.Is(err, http.ErrBodyReadAfterClose), r.Body.Close())
	}},
	{"/short", func(w http.ResponseWriter, r *http.Request, notes *record) {
		b, err := io.ReadAll(r.Body)
		n, err2 := r.Body.Read(make([]byte, 1))
		notes.add("%d %v %t; %d %v", len(b), err, errors.Is(err, io.ErrUnexpectedEOF), n, err2)
	}},
	{"/hijacked", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("X", "y")
		c, rw, err := w.(http.Hijacker).Hijack()
		n, werr := w.Write([]byte("x"))
		w.WriteHeader(500)
		_, _, herr := w.(http.Hijacker).Hijack()
		notes.add("%v; %d %v %t; %v", err, n, werr, errors.Is(werr, http.ErrHijacked), herr)
		notes.add("buffered %d %d %d", rw.Reader.Buffered(), rw.Reader.Size(), rw.Writer.Size())
		fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n!")
		rw.Flush()
		c.Close()
	}},
	{"/ctl", func(w http.ResponseWriter, r *http.Request, notes *record) {
		rc := http.NewResponseController(w)
		notes.add("%v %v %v %v", rc.EnableFullDuplex(), rc.SetReadDeadline(time.Now().Add(time.Hour)),
			rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.Flush())
		io.WriteString(w, "x")
		notes.add("%v", rc.SetReadDeadline(time.Now().Add(-time.Hour)))
		_, err := io.ReadAll(r.Body)
		notes.add("%v %t", err, errors.Is(err, os.ErrDeadlineExceeded))
	}},
	{"/wdl", func(w http.ResponseWriter, r *http.Request, notes *record) {
		rc := http.NewResponseController(w)
		rc.SetWriteDeadline(time.Now().Add(-time.Second))
		io.WriteString(w, "x")
		err := rc.Flush()
		notes.add("%t", err != nil)
	}},
	{"/trailer", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Trailer", "A, B")
		io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		w.Header().Set("A", "1")
		w.Header().Set("B", "2")
		w.Header().Set("C", "3")
		w.Header().Set(http.TrailerPrefix+"D", "4")
	}},
	{"/toolong", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "3")
		n, err := w.Write([]byte("abcd"))
		notes.add("%d %v %t", n, err, errors.Is(err, http.ErrContentLength))
		n, err = w.Write([]byte("abc"))
		notes.add("%d %v", n, err)
	}},
	{"/tooshort", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "30")
		w.Write([]byte("abcd"))
	}},
	{"/204", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(204)
		n, err := w.Write([]byte("abcd"))
		notes.add("%d %v %t", n, err, errors.Is(err, http.ErrBodyNotAllowed))
	}},
	{"/headwrite", func(w http.ResponseWriter, r *http.Request, notes *record) {
		n, err := w.Write([]byte("abcd"))
		notes.add("%d %v", n, err)
		m, err := io.Copy(w, strings.NewReader("efgh"))
		notes.add("%d %v", m, err)
	}},
	{"/echo", func(w http.ResponseWriter, r *http.Request, notes *record) {
		buf := make([]byte, 3)
		for {
			n, err := r.Body.Read(buf)
			w.Write(buf[:n])
			if err != nil {
				notes.add("%v", err)
				return
			}
		}
	}},
	{"/abort", func(w http.ResponseWriter, r *http.Request, notes *record) {
		io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}},
	{"/early", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(103)
		w.Header().Set("Link", "</b>; rel=preload")
		w.WriteHeader(103)
		w.Header().Del("Link")
		io.WriteString(w, "done")
	}},
	{"/seen", func(w http.ResponseWriter, r *http.Request, notes *record) {
		fmt.Fprintf(w, "%s %s %s %q %s %v %v %v", r.Method, r.Host, r.URL, r.RequestURI, r.Proto, r.Header,
			r.ContentLength, r.TransferEncoding)
	}},
	{"/nosniff", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header()["Content-Type"] = nil
		w.Header()["Date"] = nil
		io.WriteString(w, "<html>")
	}},
	{"/odd", func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header()["x-lower"] = []string{"a", "b"}
		w.Header().Set("X-CR", "a\r\nb: c")
		w.Header().Set("Bad Name", "x")
		w.Header().Set("Connection", "x-lower")
		w.WriteHeader(299)
	}},
}

// ready are handlers that net/http has ready.
func ready(t *testing.T, notes *record) *http.ServeMux {
	dir, m, at := t.TempDir(), http.NewServeMux(), time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, text := range map[string]string{"f.txt": strings.Repeat("0123456789", 2000), "index.html": "<p>hi",
		"sub/f": ""} {
		name = filepath.Join(dir, name)
		_ = os.MkdirAll(filepath.Dir(name), 0o755)
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o644), os.Chtimes(name, at, at),
			os.Chtimes(filepath.Dir(name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	m.Handle("/files/", http.StripPrefix("/files", http.FileServer(http.Dir(dir))))
	m.HandleFunc("/content", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"abc"`)
		http.ServeContent(w, r, "x.bin", at, strings.NewReader(strings.Repeat("abcdefghij", 1000)))
	})
	m.HandleFunc("/timeout", func(w http.ResponseWriter, r *http.Request) {
		answered := make(chan struct{})
		defer close(answered)
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-answered // a TimeoutHandler that is held up finds both ended, the time and this, and chance decides
			_, _ = io.WriteString(w, "x")
		}), 30*time.Millisecond, "too late").ServeHTTP(w, r)
	})
	m.Handle("/intime", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", "y")
		w.WriteHeader(http.StatusAccepted)
		p, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "in %q %v", p, err)
	}), time.Minute, "too late"))
	m.Handle("/maxbytes", http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := io.ReadAll(r.Body)
		var large *http.MaxBytesError
		notes.add("%d %v %t", len(p), err, errors.As(err, &large))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}), 10))
	return m
}

// posts and asks are requests with a body and without.
func posts(target, rest string) string { return "POST " + target + " HTTP/1.1\r\nHost: h\r\n" + rest }
func asks(target, fields string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"
}

// form is what follows the first fields of a request with a form in parts.
var form = func() string {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary("bbb")
	_ = w.WriteField("k", "v")
	part, _ := w.CreateFormFile("file", "../a b.txt")
	_, _ = io.WriteString(part, strings.Repeat("z", 5000))
	_ = w.Close()
	return "Content-Type: multipart/form-data; boundary=bbb\r\nContent-Length: " + fmt.Sprint(b.Len()) + "\r\n\r\n" +
		b.String()
}()

// onSurface are requests to them.
var onSurface = []string{
	asks("/files/f.txt", ""), asks("/files/", ""), asks("/files/index.html", ""), asks("/files/sub", ""),
	asks("/files/sub/", ""), asks("/files/no", ""), asks("/files/..%2f..", ""), asks("/files/f.txt/", ""),
	asks("/files/f.txt", "If-Modified-Since: Thu, 02 Jan 2020 03:04:05 GMT\r\n"),
	asks("/files/f.txt", "Range: bytes=0-4\r\n"), asks("/files/f.txt", "Range: bytes=-4\r\n"),
	asks("/files/f.txt", "Range: bytes=5-2\r\n"), asks("/files/f.txt", "Range: bytes=50000-\r\n"),
	"HEAD /files/f.txt HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD /files/f.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=0-4\r\n\r\n", "GET /files/f.txt HTTP/1.0\r\n\r\n",
	"GET /files/f.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	asks("/content", ""), asks("/content", "If-None-Match: \"abc\"\r\n"), asks("/content", "If-Match: \"x\"\r\n"),
	asks("/content", "If-Range: \"abc\"\r\nRange: bytes=1-2\r\n"),
	asks("/content", "If-Range: \"no\"\r\nRange: bytes=1-2\r\n"),
	asks("/content", "Range: bytes=0-9999999\r\n"),
	"HEAD /content HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /content HTTP/1.0\r\n\r\n",
	asks("/timeout", ""), "HEAD /timeout HTTP/1.1\r\nHost: h\r\n\r\n", asks("/intime", ""),
	posts("/intime", "Content-Length: 3\r\n\r\nabc"), posts("/timeout", "Content-Length: 3\r\n\r\nabc"),
	posts("/maxbytes", "Content-Length: 3\r\n\r\nabc"), posts("/maxbytes", "Content-Length: 13\r\n\r\nabcdefghijklm"),
	posts("/maxbytes", "Transfer-Encoding: chunked\r\n\r\nd\r\nabcdefghijklm\r\n0\r\n\r\n"),
	posts("/maxbytes", "Content-Length: 10\r\n\r\nabcdefghij"),
	asks("/dump?a=b", "X: y\r\nConnection: keep-alive\r\n"), posts("/dump", "Content-Length: 3\r\n\r\nabc"),
	posts("/dump", "Transfer-Encoding: chunked\r\nTrailer: T\r\n\r\n3\r\nabc\r\n0\r\nT: u\r\n\r\n"),
	"GET http://other/dump HTTP/1.1\r\nHost: h\r\n\r\n", "GET /dump HTTP/1.0\r\n\r\n",
	asks("/form?a=1;b=2", ""), asks("/form?a=%zz", ""), posts("/form?a=1",
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\na=2&b=3"),
	posts("/form", "Content-Type: x/\r\nContent-Length: 7\r\n\r\na=2&b=3"),
	"PUT /form HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
		"Content-Length: 3\r\n\r\na=b",
	"DELETE /form HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n" +
		"\r\na=b", posts("/form", "Content-Type: application/x-www-form-urlencoded\r\n\r\n"),
	posts("/multi", form), posts("/reader", form), posts("/reader", "Content-Length: 3\r\n\r\nabc"),
	posts("/multi", "Content-Type: multipart/form-data; boundary=bbb\r\nContent-Length: 10\r\n\r\n--bbb\r\n\r\nx"),
	posts("/multi", "Content-Type: multipart/form-data\r\nContent-Length: 1\r\n\r\nx"), asks("/multi", ""),
	asks("/cookies", "Cookie: a=b; c=\"d\"; e; =f; g=h,i\r\nCookie: j=k\r\n"), asks("/setcookies", ""),
	posts("/setcookies", "Content-Length: 0\r\n\r\n"), asks("/error", ""),
	asks("/auth", "Authorization: Basic dTpwOnE=\r\nUser-Agent: ua\r\nReferer: re\r\n"),
	asks("/auth", "Authorization: basic !!\r\n"),
	asks("/pat/1/a/b%2Fc", ""), "POST /pat/1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	asks("/clone?x", "A: b\r\nPragma: no-cache\r\n"), posts("/clone",
		"Transfer-Encoding: chunked\r\nTrailer: x\r\n\r\n0\r\n\r\n"),
	posts("/afterclose", "Content-Length: 3\r\n\r\nabc"), asks("/afterclose", ""),
	posts("/short", "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"),
	asks("/hijacked", ""), posts("/hijacked", "Content-Length: 3\r\n\r\nabc"),
	posts("/ctl", "Content-Length: 3\r\n\r\nabc"), asks("/ctl", ""), asks("/wdl", ""),
	asks("/trailer", ""), asks("/trailer", "TE: trailers\r\n"), "GET /trailer HTTP/1.0\r\n\r\n",
	"HEAD /trailer HTTP/1.1\r\nHost: h\r\n\r\n",
	asks("/toolong", ""), asks("/tooshort", ""), "HEAD /tooshort HTTP/1.1\r\nHost: h\r\n\r\n", asks("/204", ""),
	"HEAD /headwrite HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /headwrite HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	posts("/echo", "Content-Length: 7\r\n\r\nabcdefg"), posts("/echo",
		"Transfer-Encoding: chunked\r\n\r\n7\r\nabcdefg\r\n0\r\n\r\n"), asks("/echo", ""),
	asks("/abort", ""), asks("/early", ""), "HEAD /early HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET http://o:99/seen?q HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
	"OPTIONS /seen HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\n",
	"CONNECT /seen HTTP/1.1\r\nHost: h\r\n\r\n", "TRACE /seen HTTP/1.1\r\nHost: h\r\n\r\n",
	"FOO /seen HTTP/1.1\r\nHost: h\r\n\r\n",
	asks("/seen", "Connection: close, X-Hop\r\nX-Hop: 1\r\n"), asks("/seen", "Connection: upgrade\r\nUpgrade: foo\r\n"),
	"GET /seen HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", "GET /seen HTTP/1.1\r\nHost:\r\n\r\n",
	"GET //seen HTTP/1.1\r\nHost: h\r\n\r\n", "GET /./seen HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /seen/../seen HTTP/1.1\r\nHost: h\r\n\r\n", asks("/nosniff", ""), asks("/odd", ""),
	asks("/nothing", ""),
	posts("/echo", "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
}

// What a handler is told and what its client gets are the same to the byte.
func TestSurfaceLikeNetHTTP(t *testing.T) {
	for i, request := range onSurface {
		t.Run(fmt.Sprintf("%d %.30q", i, request), func(t *testing.T) {
			t.Parallel()
			var notes *record
			sameOnBoth(t, func(s *Server) {
				mine := new(record)
				m := ready(t, mine)
				for _, h := range surface {
					m.HandleFunc(h.pattern, func(w http.ResponseWriter, r *http.Request) { h.handle(w, r, mine) })
				}
				s.Handler, notes = m, mine
			}, func(t *testing.T, f *fixture, r *record) {
				c := dial(t, f)
				io.WriteString(c, request)
				switch { // the hijacker counts what has come
				case strings.Contains(request, "/short "):
					closeWrite(c)
				case !strings.Contains(request, "/hijacked "):
					io.WriteString(c, last)
				}
				got, _ := io.ReadAll(c) // net/http may reset behind its last answer
				r.add("%q; %s; log %s", headed(string(got)), notes, firstLines(f.log.String()))
			})
		})
	}
}

// What keeps a server from listening is said as net/http says it, in the same type.
func TestListenFailsLikeNetHTTP(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, addr := range []string{busy.Addr().String(), "nonsense", "127.0.0.1:99999", ":nosuch"} {
		std := (&http.Server{Addr: addr}).ListenAndServe()
		ours := prepare(t, &Server{Addr: addr}, myriad.Config{Loops: 1}).ListenAndServe()
		if a, b := fmt.Sprintf("%T %v", std, std), fmt.Sprintf("%T %v", ours, ours); a != b {
			t.Errorf("%s:\nnet/http: %s\nhere:     %s", addr, a, b)
		}
	}
}
