package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/httpscript"
)

// userVerbs are steps of handlers as users write them. They get the case's own Call.
func userVerbs(t *testing.T) map[string]func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
	return map[string]func(c *httpscript.Call, w http.ResponseWriter, r *http.Request){
		"ready": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			ready(t, c).ServeHTTP(w, r)
		},
		"serveopened": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			f, err := os.Open(datedFile(t))
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), io.NewSectionReader(f, 0, 1000))
		},
		"servefile": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, datedFile(t))
		},
		"dump": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			b, err := httputil.DumpRequest(r, true)
			fmt.Fprintf(w, "%q %v\n", b, err)
			b2, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%q %v %v\n", b2, err, r.Trailer)
		},
		"form": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			err := r.ParseForm()
			fmt.Fprintf(w, "%v %v %v %q %q\n", err, r.Form, r.PostForm, r.FormValue("a"), r.PostFormValue("a"))
		},
		"multi": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			f, h, err := r.FormFile("file")
			if err != nil {
				fmt.Fprintf(w, "err %v", err)
				return
			}
			b, _ := io.ReadAll(f)
			fmt.Fprintf(w, "%s %d %d %v %v", h.Filename, h.Size, len(b), h.Header, r.MultipartForm.Value)
			_, isFile := f.(*os.File)
			c.Note("on disk %t", isFile)
		},
		"parts": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
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
		},
		"cookies": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			for _, k := range r.Cookies() {
				fmt.Fprintf(w, "%s=%s;", k.Name, k.Value)
			}
			http.SetCookie(w, &http.Cookie{Name: "n", Value: "v w", Path: "/", HttpOnly: true,
				SameSite: http.SameSiteLaxMode})
			http.SetCookie(w, &http.Cookie{Name: "n2", Value: "v", MaxAge: -1, Secure: true})
		},
		"auth": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			u, p, ok := r.BasicAuth()
			fmt.Fprint(w, u, p, ok, r.UserAgent(), r.Referer(), r.Proto, r.ProtoAtLeast(1, 1))
		},
		"clone": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			copied := r.Clone(context.Background())
			fmt.Fprint(w, copied.URL, copied.Host, copied.Header, copied.ContentLength, copied.TransferEncoding,
				copied.Close, copied.Form, copied.Trailer,
				copied.RemoteAddr != "", copied.RequestURI, copied.TLS, copied.Response, copied.Pattern)
		},
		"hijacked": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", "y")
			nc, rw, err := w.(http.Hijacker).Hijack()
			n, werr := w.Write([]byte("x"))
			w.WriteHeader(500)
			_, _, herr := w.(http.Hijacker).Hijack()
			c.Note("%v; %d %v %t; %v", err, n, werr, errors.Is(werr, http.ErrHijacked), herr)
			c.Note("buffered %d %d %d", rw.Reader.Buffered(), rw.Reader.Size(), rw.Writer.Size())
			fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n!")
			rw.Flush()
			nc.Close()
		},
		"echo": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			buf := make([]byte, 3)
			for {
				n, err := r.Body.Read(buf)
				w.Write(buf[:n])
				if err != nil {
					c.Note("%v", err)
					return
				}
			}
		},
		"pattern": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			m := http.NewServeMux()
			m.HandleFunc("GET /pat/{id}/{rest...}", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.Pattern, r.PathValue("id"), r.PathValue("rest"))
			})
			m.ServeHTTP(w, r)
		},
		"muxed": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			m := http.NewServeMux()
			m.HandleFunc("/seen", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %s %s %q %s %v %v %v", r.Method, r.Host, r.URL, r.RequestURI, r.Proto, r.Header,
					r.ContentLength, r.TransferEncoding)
			})
			m.ServeHTTP(w, r)
		},
		"flushfails": func(c *httpscript.Call, w http.ResponseWriter, _ *http.Request) {
			c.Note("flush fails: %t", http.NewResponseController(w).Flush() != nil)
		},
		"copied": func(c *httpscript.Call, w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(w, strings.NewReader("efgh"))
			c.Note("copied: %d %v", n, err)
		},
	}
}

// datedFile is a file of 13,000 bytes, made in 2020.
func datedFile(t *testing.T) string {
	name, at := filepath.Join(t.TempDir(), "f.txt"), time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := errors.Join(os.WriteFile(name, []byte(strings.Repeat("0123456789", 1300)), 0o644),
		os.Chtimes(name, at, at)); err != nil {
		t.Error(err)
	}
	return name
}

// ready are handlers that net/http has ready.
func ready(t *testing.T, c *httpscript.Call) *http.ServeMux {
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
		http.ServeContent(w, r, "x.txt", at, strings.NewReader(strings.Repeat("abcdefghij", 1000)))
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
		c.Note("%d %v %t", len(p), err, errors.As(err, &large))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}), 10))
	return m
}

// What a handler is told and what its client gets are the same to the byte.
func TestSurfaceLikeNetHTTP(t *testing.T) { playLikeNetHTTP(t, "user_handlers.txt") }

// posts and asks are requests with a body and without.
func posts(target, rest string) string { return "POST " + target + " HTTP/1.1\r\nHost: h\r\n" + rest }
func asks(target, fields string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n"
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
