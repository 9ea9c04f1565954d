package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
)

// The package's functions have the signatures of net/http's.
var (
	_ = []func(string, http.Handler) error{http.ListenAndServe, ListenAndServe}
	_ = []func(string, string, string, http.Handler) error{http.ListenAndServeTLS, ListenAndServeTLS}
	_ = []func(net.Listener, http.Handler) error{http.Serve, Serve}
	_ = []func(net.Listener, http.Handler, string, string) error{http.ServeTLS, ServeTLS}
)

// They run on the default engine, which never stops: the test does so in a process of its own.
func TestPackageServes(t *testing.T) {
	if os.Getenv("MYRIAD_TEST_DEFAULT") != "" {
		serveByPackage(t)
		if t.Failed() {
			os.Exit(1)
		}
		fmt.Println("all have served")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPackageServes$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), "MYRIAD_TEST_DEFAULT=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "all have served") {
		t.Errorf("%v\n%s", err, out)
	}
}

func serveByPackage(t *testing.T) {
	cert, key := pairFiles(t)
	http.DefaultServeMux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "default") })
	own := http.NewServeMux()
	own.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "own") })
	for handler, want := range map[http.Handler]string{nil: "default", own: "own"} {
		for name, one := range map[string]struct {
			scheme string
			serve  func(l net.Listener) error
		}{
			"Serve":    {"http", func(l net.Listener) error { return Serve(l, handler) }},
			"ServeTLS": {"https", func(l net.Listener) error { return ServeTLS(l, handler, cert, key) }},
			"ListenAndServe": {"http",
				func(l net.Listener) error { l.Close(); return ListenAndServe(l.Addr().String(), handler) }},
			"ListenAndServeTLS": {"https",
				func(l net.Listener) error {
					l.Close()
					return ListenAndServeTLS(l.Addr().String(), cert, key,
						handler)
				}},
		} {
			l, err := net.Listen("tcp", freeport.For(t, 1)[0]) // two of the functions listen again
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- one.serve(l) }()
			got, err := askUntil(one.scheme+"://"+l.Addr().String(), ended)
			if got != want || err != nil {
				fmt.Printf("%s: %q, %v; want %q\n", name, got, err, want)
				t.Fail()
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := Serve(l, nil); !errors.Is(err, net.ErrClosed) {
		fmt.Printf("Serve of a closed listener: %v\n", err)
		t.Fail()
	}
}

// askUntil asks until the server answers or has ended with an error.
func askUntil(url string, ended <-chan error) (string, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for {
		if res, err := client.Get(url); err == nil {
			body, err := io.ReadAll(res.Body)
			return string(body), err
		}
		select {
		case err := <-ended:
			return "", err
		case <-time.After(time.Millisecond):
		}
	}
}

func TestTLSSaysWhatIsMissing(t *testing.T) {
	cert, key := pairFiles(t)
	for _, tt := range []struct{ cert, key, want string }{
		{"", "", "web: HTTPS needs a certificate: name a certificate file and a key file, or set Certificates or " +
			"GetCertificate in Server.TLSConfig"},
		{cert, "", fmt.Sprintf("web: HTTPS with the certificate file %q needs a key file: name it too", cert)},
		{"", key, fmt.Sprintf("web: HTTPS with the key file %q needs a certificate file: name it too", key)},
	} {
		for name, fails := range map[string]func(s *Server) error{
			"ListenAndServeTLS": func(s *Server) error { return s.ListenAndServeTLS(tt.cert, tt.key) },
			"ListenTLS": func(s *Server) error {
				_, err := s.ListenTLS("tcp", "127.0.0.1:0", tt.cert,
					tt.key)
				return err
			},
			"ServeTLS": func(s *Server) error { return s.ServeTLS(nil, tt.cert, tt.key) },
		} {
			s := &Server{Addr: "127.0.0.1:0"}
			prepare(t, s, myriad.Config{Loops: 1})
			if err := fails(s); err == nil || err.Error() != tt.want || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s(%q, %q): %v; want %s", name, tt.cert, tt.key, err, tt.want)
			}
		}
	}
	s := &Server{}
	prepare(t, s, myriad.Config{Loops: 1})
	if _, err := s.ListenTLS("tcp", "127.0.0.1:0", "no-such-file", key); err == nil ||
		!strings.Contains(err.Error(), `"no-such-file"`) {
		t.Errorf("with a certificate file that is not there: %v", err)
	}
}
