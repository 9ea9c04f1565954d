package websocket

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/freeport"
	"github.com/myriad-go/myriad/web"
)

// The Autobahn test suite takes minutes and Python 2, so it runs only where MYRIAD_AUTOBAHN names
// its program, wstest; testdata/autobahn.sh installs that. MYRIAD_AUTOBAHN_CASES narrows it
// ("12.*,13.1.*"), MYRIAD_AUTOBAHN_AGENT to one set of options; MYRIAD_AUTOBAHN_REPORTS keeps its
// reports.
const (
	autobahnEnv        = "MYRIAD_AUTOBAHN"
	autobahnCasesEnv   = "MYRIAD_AUTOBAHN_CASES"
	autobahnAgentEnv   = "MYRIAD_AUTOBAHN_AGENT"
	autobahnReportsEnv = "MYRIAD_AUTOBAHN_REPORTS"
)

type autobahn struct {
	t       *testing.T
	program string
	cases   []string
	reports string
}

func newAutobahn(t *testing.T) *autobahn {
	t.Helper()
	program := os.Getenv(autobahnEnv)
	if program == "" {
		t.Skip("set " + autobahnEnv + " to the path of wstest: see docs/HACKING.md")
	}
	a := &autobahn{t, program, []string{"*"}, os.Getenv(autobahnReportsEnv)}
	if cases := os.Getenv(autobahnCasesEnv); cases != "" {
		a.cases = strings.Split(cases, ",")
	}
	if a.reports == "" {
		a.reports = t.TempDir()
	}
	return a
}

// start runs wstest with a specification. It writes its reports to a folder of that name.
func (a *autobahn) start(mode, folder string, spec map[string]any) *exec.Cmd {
	a.t.Helper()
	dir := filepath.Join(a.reports, folder)
	spec["outdir"], spec["cases"], spec["exclude-cases"], spec["exclude-agent-cases"] = dir, a.cases, []string{},
		map[string]any{}
	text, err := json.Marshal(spec)
	if err != nil {
		a.t.Fatal(err)
	}
	file := filepath.Join(a.t.TempDir(), mode+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(a.program, "-m", mode, "-s", file)
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	if testing.Verbose() {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	return cmd
}

// judge reads the index of the reports. Everything has to be OK, but for what the suite calls
// informational.
func (a *autobahn) judge(folder string, agents []string) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.reports, folder, "index.json"))
	if err != nil {
		a.t.Fatal(err)
	}
	var index map[string]map[string]struct{ Behavior, BehaviorClose string }
	if err := json.Unmarshal(text, &index); err != nil {
		a.t.Fatal(err)
	}
	for _, agent := range agents {
		counts := map[string]int{}
		for id, result := range index[agent] {
			counts[result.Behavior]++
			if result.Behavior != "OK" && result.Behavior != "INFORMATIONAL" {
				a.t.Errorf("%s: case %s: %s", agent, id, result.Behavior)
			}
			if result.BehaviorClose != "OK" && result.BehaviorClose != "INFORMATIONAL" {
				a.t.Errorf("%s: case %s: closed %s", agent, id, result.BehaviorClose)
			}
		}
		a.t.Logf("%s: %v", agent, counts)
		if len(index[agent]) == 0 {
			a.t.Errorf("%s: no case was run", agent)
		}
	}
}

// autobahnOptions are an echo by name of what is special about it.
func autobahnOptions() map[string]*Options {
	const all = 32 << 20 // the suite's largest message is 16 MiB
	echo := func(d web.Dispatch, k Compression) *Options {
		return &Options{Dispatch: d, Compression: k, MaxMessage: all, WriteLimit: all,
			OnMessage: func(c *Conn, op Op, p []byte) {
				if err := c.Write(op, p); err != nil {
					_ = c.Close(StatusTryAgainLater, err.Error())
				}
			}}
	}
	agents := map[string]*Options{
		"inline": echo(web.DispatchInline, Compression{Enabled: true, Threshold: -1}),
		"auto":   echo(web.DispatchAuto, Compression{Enabled: true, Threshold: -1}),
		"pool-windows": echo(web.DispatchPool, Compression{Enabled: true, Threshold: -1, WriteWindowBits: 15,
			ReadWindowBits: 15}),
		"small-windows": echo(web.DispatchInline, Compression{Enabled: true, Threshold: -1, WriteWindowBits: 9,
			ReadWindowBits: 10,
			Level:          6}),
	}
	if only := os.Getenv(autobahnAgentEnv); only != "" {
		maps.DeleteFunc(agents, func(name string, _ *Options) bool { return name != only })
	}
	return agents
}

func startAutobahnEngine(t *testing.T) *myriad.Engine {
	return startEngine(t, myriad.Config{MaxWrite: 32 << 20, WriteLimit: 32 << 20})
}

func TestAutobahnServer(t *testing.T) {
	a := newAutobahn(t)
	e := startAutobahnEngine(t)
	var servers []map[string]any
	var agents []string
	for name, o := range autobahnOptions() {
		agents = append(agents, name)
		o.Workers = startPool(t)
		servers = append(servers, map[string]any{"agent": name, "url": "ws://" + listen(t, e, Handler(o))})
	}
	must(t, a.start("fuzzingclient", "servers", map[string]any{"servers": servers}).Wait())
	a.judge("servers", agents)
}

func TestAutobahnClient(t *testing.T) {
	a := newAutobahn(t)
	addr := freeport.For(t, 1)[0] // wstest cannot choose one
	cmd := a.start("fuzzingserver", "clients", map[string]any{"url": "ws://" + addr})
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	e := startAutobahnEngine(t)
	var agents []string
	for name, o := range autobahnOptions() {
		agents = append(agents, name)
		runAutobahnClient(t, e, "ws://"+addr, name, o)
	}
	slices.Sort(agents)
	a.judge("clients", agents)
}

// runAutobahnClient asks for the number of cases, runs each and has the report written.
func runAutobahnClient(t *testing.T, e *myriad.Engine, url, agent string, like *Options) {
	t.Helper()
	var cases int
	pool := startPool(t)
	say := func(path string, compressed bool, onMessage func(c *Conn, op Op, p []byte)) {
		ended := make(chan error, 1)
		o := &DialOptions{}
		o.Engine, o.Dispatch, o.MaxMessage, o.WriteLimit = e, like.Dispatch, like.MaxMessage, like.WriteLimit
		o.Workers = pool
		o.OnMessage, o.OnClose = onMessage, func(_ *Conn, err error) { ended <- err }
		if compressed {
			o.Compression = like.Compression
		}
		for try := 0; ; try++ { // wstest takes a while to listen
			_, _, err := Dial(context.Background(), url+path, o)
			if err == nil {
				break
			}
			if try == 200 {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		select {
		case <-ended:
		case <-time.After(2 * hangs):
			t.Fatalf("%s: no end", path)
		}
	}
	say("/getCaseCount", false, func(_ *Conn, _ Op, p []byte) { fmt.Sscan(string(p), &cases) })
	for i := range cases {
		say(fmt.Sprintf("/runCase?case=%d&agent=%s", i+1, agent), true, like.OnMessage)
	}
	say("/updateReports?agent="+agent, false, nil)
}
