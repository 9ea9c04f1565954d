package push_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/policy"
)

// writeStates names the environment variable that has TestStatesOfVersions write a state of today
// as that version. It is for a change of the form: a part of another form gets another name.
const writeStates = "MYRIAD_WRITE_STATES"

// versionConfig is that of the servers of states. It must not change, or older states are refused.
func versionConfig() push.Config {
	return push.Config{Namespaces: []push.Namespace{{Name: "kept", HistorySize: 10, HistoryAge: 1 << 40, Recovery: true,
		Presence: true, JoinLeave: true}}, Doors: servertest.Doors(mercure.Config{Subscriptions: true}),
		Rates: policy.Rates{AddressSubscriptions: policy.Rate{Count: 100, Per: 1 << 40}}}
}

// statedServer returns a server that has something of each part of a state, and its streams.
func statedServer(t *testing.T) (*servertest.Server, map[string]*servertest.Stream) {
	t.Helper()
	s := servertest.New(t, versionConfig())
	const connect = `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"kept:a",`
	streams := map[string]*servertest.Stream{
		"events":      s.Events("channel=kept:a"),
		"http_stream": s.Open("POST", "/connection/http_stream", connect+`"delta":"fossil"}}`),
		"sse":         s.Open("POST", "/connection/sse", connect+`"tf":{"key":"k","cmp":"eq","val":"1"}}}`),
		"uni_sse":     s.Open("POST", "/connection/uni_sse", `{"subs":{"kept:a":{}}}`),
		"mercure":     s.Open("GET", "/.well-known/mercure?topic=https://a/{id}", ""),
	}
	for i := range 3 {
		s.Call("publish", fmt.Sprintf(`{"channel":"kept:a","data":{"text":"long enough for a delta","n":%d},`+
			`"tags":{"k":"1"},"delta":true,"idempotency_key":"id%d"}`, i, i))
	}
	s.Hub.CountRefusal(hub.RefusedToken, "192.0.2.1", "error", "it is old")
	s.Clock.Advance(2 * push.SampleEvery)
	return s, streams
}

// frozenStates freezes a server, and returns its state and those of its streams.
func frozenStates(t *testing.T, s *servertest.Server, streams map[string]*servertest.Stream) map[string][]byte {
	t.Helper()
	s.Hub.OfferStreams(true)
	if err := s.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	var state bytes.Buffer
	if err := s.WriteState(&state); err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{"server": state.Bytes()}
	for name, stream := range streams {
		frozen, ok := stream.Freeze()
		if !ok {
			t.Fatalf("%s does not move", name)
		}
		all[name] = bytes.Clone(frozen)
	}
	return all
}

// States that each version has written, which are in testdata/states, are read, or refused with the
// name of what is not understood. None is misread.
func TestStatesOfVersions(t *testing.T) {
	if version := os.Getenv(writeStates); version != "" {
		s, streams := statedServer(t)
		for name, state := range frozenStates(t, s, streams) {
			folder := filepath.Join("testdata", "states", version)
			if err := errors.Join(os.MkdirAll(folder, 0o777),
				os.WriteFile(filepath.Join(folder, name), state, 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		s.Thaw()
	}
	versions, err := os.ReadDir("testdata/states")
	if err != nil || len(versions) == 0 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	for i, version := range versions {
		t.Run(version.Name(), func(t *testing.T) {
			state := func(name string) []byte {
				p, err := os.ReadFile(filepath.Join("testdata", "states", version.Name(), name))
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			if i == len(versions)-1 {
				checkParts(t, state("server"))
			}
			checkState(t, state)
		})
	}
}

// checkParts fails if a state has not the parts of today, or nothing of one of them.
func checkParts(t *testing.T, state []byte) {
	t.Helper()
	today := servertest.New(t, versionConfig()).StateParts()
	r, err := snapshot.NewReader(bytes.NewReader(state), today)
	if err != nil {
		t.Fatalf("run this test with %s=VERSION: a new version of the form has no state here: %v", writeStates, err)
	}
	seen := map[string]bool{}
	for err == nil {
		var part string
		if part, _, err = r.Next(); err == nil {
			seen[part] = true
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	// No record has these: what sessions write, names of doors, and what needs a slow client.
	other := []string{"hub.session.1", "hub.slow.1", "sse/1", "mercure/1", "centrifuge/1"}
	for _, part := range today {
		if seen[part] == slices.Contains(other, part) {
			t.Errorf("run this test with %s=VERSION: the part %q: %v", writeStates, part, seen[part])
		}
	}
}

// checkState has a server read a state, and looks what it has of it.
func checkState(t *testing.T, state func(name string) []byte) {
	t.Helper()
	to := servertest.New(t, versionConfig())
	if err := to.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := to.ReadState(bytes.NewReader(state("server"))); err != nil {
		if !errors.Is(err, snapshot.ErrUnknown) {
			t.Errorf("it is not understood, and the error does not say so: %v", err)
		}
		to.Leave()
		return
	}
	streams := map[string]*servertest.Stream{}
	for _, name := range []string{"events", "http_stream", "sse", "uni_sse", "mercure"} {
		streams[name] = new(servertest.Stream)
		if err := to.Hub.ThawStream(streams[name], state(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		to.Streams = append(to.Streams, streams[name])
	}
	to.Thaw()
	if got := to.Hub.Counts(); got.Connections != 5 || got.Publishes != 4 || got.Messages != 12 {
		t.Errorf("counts: %+v", got)
	}
	again := to.Call("publish", `{"channel":"kept:a","data":1,"idempotency_key":"id2"}`)
	history := to.Call("history", `{"channel":"kept:a","limit":10}`)
	if !strings.Contains(again, `"offset":3`) || strings.Count(history, `"offset":`) != 4 {
		t.Errorf("a publication that was sent again: %s\nhistory: %s", again, history)
	}
	to.Call("publish", `{"channel":"kept:a","data":{"text":"long enough for a delta","n":3},"delta":true,`+
		`"tags":{"k":"1"}}`)
	for name, stream := range streams {
		got, want := stream.Take(), `"n":3`
		switch name {
		case "mercure":
			want = ""
		case "http_stream":
			want = `"delta":true`
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s receives %q, want %q", name, got, want)
		}
	}
	if _, refused, last := to.Refusals(0); len(refused) != 1 || last != 1 || refused[0].Remote != "192.0.2.1" {
		t.Errorf("refusals to number %d: %+v", last, refused)
	}
	if n := len(to.Figures(0).Samples); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
}

// Any state is refused, or a server that has read it writes one that another server reads.
func FuzzReadState(f *testing.F) {
	states, err := filepath.Glob("testdata/states/*/server")
	if err != nil || len(states) == 0 {
		f.Fatalf("%d states, %v", len(states), err)
	}
	for _, path := range states {
		state, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(state)
	}
	f.Add([]byte("myriad state 1\n\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, state []byte) {
		one := servertest.New(t, versionConfig())
		if err := one.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer one.Leave()
		if one.ReadState(bytes.NewReader(state)) != nil {
			return
		}
		var again bytes.Buffer
		if err := one.WriteState(&again); err != nil {
			t.Fatal(err)
		}
		other := servertest.New(t, versionConfig())
		if err := other.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer other.Leave()
		if err := other.ReadState(&again); err != nil {
			t.Errorf("%q is written as what is refused: %v", state, err)
		}
	})
}
