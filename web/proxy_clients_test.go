package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/internal/freeport"
)

// curl sends headers of version 1, about its own connection.
func TestCurlProxyProtocol(t *testing.T) {
	curl := tool(t, "curl")
	plain := serve(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback})
	secure := serveTLS(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback})
	for _, url := range []string{"http://" + plain.addr, "https://" + secure.addr} {
		out, err := exec.Command(curl, "-sSk", "--http1.1", "--max-time", "20", "--haproxy-protocol",
			"-w", "|%{local_ip}:%{local_port} to %{remote_ip}:%{remote_port}", url).CombinedOutput()
		if err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		if said, own, ok := strings.Cut(string(out), "|"); !ok || said != own {
			t.Errorf("the server says %q, curl %q", said, own)
		}
	}
	if logged := plain.log.String() + secure.log.String(); logged != "" {
		t.Errorf("logged %q", logged)
	}
}

// balancerConfigs are configurations of programs that pass TCP on with a header: %[1]s is a folder,
// %[2]s where to listen, %[3]s the server.
var balancerConfigs = map[string][]string{
	"nginx": {"-c", `worker_processes 1; daemon off; master_process off; pid %[1]s/pid; error_log stderr;
%[4]sevents {}
stream { server { listen %[2]s; proxy_pass %[3]s; proxy_protocol on; } }
`},
	"haproxy": {"-f", `defaults
  mode tcp
  timeout connect 20s
  timeout client 20s
  timeout server 20s
listen l
  bind %[2]s
  server s %[3]s send-proxy-v2
`},
}

// The addresses that real load balancers tell are those of their clients.
func TestBalancers(t *testing.T) {
	for name, c := range balancerConfigs {
		t.Run(name, func(t *testing.T) {
			program := tool(t, name)
			module := ""
			if name == "nginx" {
				if out, _ := exec.Command(program, "-V").CombinedOutput(); strings.Contains(string(out),
					"--with-stream=dynamic") {
					module = "/usr/lib/nginx/modules/ngx_stream_module.so"
					if _, err := os.Stat(module); err != nil {
						t.Skip("nginx has no module for streams: ", err)
					}
					module = "load_module " + module + ";\n"
				}
			}
			for i, f := range []*fixture{
				serve(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback}),
				serveTLS(t, &Server{Handler: tellAddrs, ProxyProtocol: loopback}),
			} {
				dir, addr := t.TempDir(), freeport.For(t, 1)[0]
				file := filepath.Join(dir, "conf")
				text := fmt.Sprintf(strings.ReplaceAll(c[1], "%[4]s", module), dir, addr, f.addr)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				stop := runBalancer(t, exec.Command(program, c[0], file))
				nc := dialWhenUp(t, &fixture{addr: addr})
				own := nc.LocalAddr().String()
				if i > 0 {
					nc = tls.Client(nc, trusting())
				}
				if got := answerOn(t, nc, last); got != own+" to "+addr {
					t.Errorf("%s; the client is %s", got, own)
				}
				nc.Close()
				stop()
			}
		})
	}
}

func runBalancer(t *testing.T, c *exec.Cmd) (stop func()) {
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		if err := c.Wait(); !errors.As(err, new(*exec.ExitError)) {
			t.Errorf("%v: %s", err, &out)
		}
	})
	t.Cleanup(stop)
	return stop
}
