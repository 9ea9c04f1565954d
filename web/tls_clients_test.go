package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// curl is the path of a client that is not ours, or the test is skipped.
func curl(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	switch {
	case err == nil:
	case os.Getenv("MYRIAD_REQUIRE_CLIENTS") == "1":
		t.Fatal(err)
	default:
		t.Skipf("%v (MYRIAD_REQUIRE_CLIENTS=1 makes this a failure)", err)
	}
	return path
}

// curl in the ways that people use it: what arrives at either end, and which versions were agreed on.
func TestCurl(t *testing.T) {
	client := curl(t)
	large := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	f := serveTLS(t, &Server{
		TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/large" {
				io.WriteString(w, large)
				return
			}
			fmt.Fprintf(w, "%s %s %d certificates, %d bytes, %v", r.Proto, tls.VersionName(r.TLS.Version), len(r.TLS.PeerCertificates), n, err)
		}),
	})
	cert, key := pairFiles(t)
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		path string
		want string
	}{
		"as it comes":         {want: "HTTP/1.1 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"TLS 1.2":             {args: []string{"--tls-max", "1.2"}, want: "HTTP/1.1 TLS 1.2 0 certificates, 0 bytes, <nil>"},
		"TLS 1.3":             {args: []string{"--tlsv1.3"}, want: "HTTP/1.1 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"HTTP/2 wanted":       {args: []string{"--http2"}, want: "HTTP/1.1 TLS 1.3 0 certificates, 0 bytes, <nil>"},
		"client certificate":  {args: []string{"--cert", cert, "--key", key}, want: "HTTP/1.1 TLS 1.3 1 certificates, 0 bytes, <nil>"},
		"the same in TLS 1.2": {args: []string{"--cert", cert, "--key", key, "--tls-max", "1.2"}, want: "HTTP/1.1 TLS 1.2 1 certificates, 0 bytes, <nil>"},
		"upload":              {args: []string{"-T", upload}, want: fmt.Sprintf("HTTP/1.1 TLS 1.3 0 certificates, %d bytes, <nil>", len(large))},
		"upload in TLS 1.2":   {args: []string{"-T", upload, "--tls-max", "1.2"}, want: fmt.Sprintf("HTTP/1.1 TLS 1.2 0 certificates, %d bytes, <nil>", len(large))},
		"download":            {path: "large", want: large},
		"download in TLS 1.2": {args: []string{"--tls-max", "1.2"}, path: "large", want: large},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			args := append([]string{"-sS", "--insecure", "--noproxy", "*", "https://" + f.addr + "/" + tt.path}, tt.args...)
			out, err := exec.CommandContext(ctx, client, args...).CombinedOutput()
			if string(out) != tt.want || err != nil {
				t.Errorf("got %d bytes, %.200q, %v; want %.200q", len(out), out, err, tt.want)
			}
		})
	}
}
