package clients

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const secret = "a secret that is long enough for HS256"

// A library is a client library and the script that uses it.
type library struct {
	name string
	run  func(t *testing.T, args ...string) *process
}

var libraries = []library{
	{"centrifuge-js", func(t *testing.T, args ...string) *process {
		return node(t, "centrifuge", "testdata/client.mjs", args...)
	}},
	{"centrifuge-python", func(t *testing.T, args ...string) *process {
		return python(t, "centrifuge", "testdata/client.py", args...)
	}},
}

func node(t *testing.T, module, script string, args ...string) *process {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node", "install Node.js 20 or newer")
	}
	if _, err := os.Stat("node_modules/" + module); err != nil {
		missing(t, "the npm package "+module, "npm ci --prefix server/clients")
	}
	return start(t, nil, program, append([]string{script}, args...)...)
}

// findModules fails unless Python has the modules that are its arguments. Importing them here would
// take longer than many a test.
const findModules = `import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))`

// python runs a script that needs the modules, which are separated by spaces.
func python(t *testing.T, module, script string, args ...string) *process {
	t.Helper()
	program, modules := ".venv/bin/python", strings.Fields(module)
	if _, err := os.Stat(program); err != nil {
		program = "python3"
	}
	if err := exec.Command(program, append([]string{"-c", findModules}, modules...)...).Run(); err != nil {
		missing(t, "the Python module "+module, "see docs/HACKING.md for how to make server/clients/.venv")
	}
	return start(t, nil, program, append([]string{"-u", script}, args...)...)
}

func curl(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := exec.LookPath("curl")
	if err != nil {
		missing(t, "curl", "install curl")
	}
	return start(t, nil, program, append([]string{"-sS", "-N"}, args...)...)
}

// publish publishes by curl, as the README does.
func (s server) publish(data string, args ...string) {
	s.t.Helper()
	args = append(args, "http://"+s.addr+"/api/publish", "-d", `{"channel": "news", "data": `+data+`}`)
	p := curl(s.t, args...)
	p.want(`^{"result":{}}$`)
	if err := p.wait(); err != nil {
		s.t.Error(err)
	}
}

func (s server) websocket() string { return "ws://" + s.addr + "/connection/websocket" }

// A client connects, subscribes, stays connected for three ping intervals, and receives what curl
// and the client itself publish.
func TestLibraries(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			for interval := time.Second; !staysConnected(t, lib, interval); interval *= 3 {
				if interval > 10*time.Second {
					t.Fatalf("the client answers no ping in time, with an interval of %v", interval)
				}
			}
		})
	}
}

// staysConnected reports whether the client answered all pings in time. It returns false if the
// machine delayed the client for too long.
func staysConnected(t *testing.T, lib library, interval time.Duration) bool {
	t.Helper()
	s := serve(t, "--ping-interval", interval.String())
	c := lib.run(t, s.websocket(), "news")
	answers := func(pattern string) bool {
		t.Helper()
		return !strings.HasPrefix(c.want(pattern + "|" + noPong)[0], "connecting")
	}
	c.want(`^subscribed$`)
	time.Sleep(4 * interval) // three intervals, and the random delay of the first ping
	s.publish(`{"text": "hello", "n": 1}`)
	if !answers(`^publication {"text":"hello","n":1}$`) {
		return false
	}
	c.say(`{"from":"client"}`)
	if !answers(`^publication {"from":"client"}$`) {
		return false
	}
	c.never(`^(disconnected|error)|^connecting [^0]`)
	s.stop()
	c.want(`^connecting 3001 shutdown$`)
	if err := s.wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	return true
}

const noPong = `^connecting 3012 no pong$`

func token(t *testing.T, key string, expires time.Duration) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann",
		"exp": time.Now().Add(expires).Unix()}).SignedString([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestLibrariesWithTokens(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--api-key", "key", "--token-secret", secret)
			good := lib.run(t, s.websocket(), "news", token(t, secret, time.Hour))
			good.want(`^subscribed$`)
			s.publish(`1`, "-H", "X-API-Key: key")
			good.want(`^publication 1$`)
			lib.run(t, s.websocket(), "news", token(t, "another", time.Hour)).want(`^disconnected 3500 invalid token$`)
			lib.run(t, s.websocket(), "news").want(`^disconnected 3501 bad request$`)
			lib.run(t, s.websocket(), "news", token(t, secret, -time.Minute)).want(`109.*token expired`)
		})
	}
}

func TestCurlEvents(t *testing.T) {
	t.Parallel()
	s := serve(t, "--ping-interval", "1s")
	c := curl(t, "http://"+s.addr+"/events?channel=news")
	c.want(`^retry: \d+$`)
	for range 3 {
		c.want(`^:$`)
	}
	s.publish(`{"text": "hello"}`)
	c.want(`^data: {"text":"hello"}$`)
	s.stop()
	if err := c.wait(); err != nil {
		t.Errorf("curl ended with %v: the stream was interrupted", err)
	}
}

func TestEventSource(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := node(t, "eventsource", "testdata/events.mjs", "http://"+s.addr+"/events?channel=news")
	c.want(`^open$`)
	s.publish(`{"text": "hello"}`)
	c.want(`^publication {"text":"hello"}$`)
}

// On an address that other machines can reach, the server does not start without a key and a
// secret.
func TestRefusesToBeAnOpenRelay(t *testing.T) {
	t.Parallel()
	p := start(t, nil, binary, "serve", "--listen", "0.0.0.0:0")
	p.want(`MYRIAD_API_KEY.*MYRIAD_TOKEN_SECRET`)
	if err := p.wait(); err == nil {
		t.Error("the server ended without an error")
	}
}
