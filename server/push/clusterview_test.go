package push_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// A bus with a state is the memory bus of a node that says that it is part of a cluster.
type busWithState struct {
	bus.Bus
	state bus.State
}

func (b *busWithState) State() bus.State { return b.state }

func newClusterServer(t *testing.T, problem string) *servertest.Server {
	bus := &busWithState{membus.New(membus.Config{}), bus.State{Problem: problem,
		Nodes: []bus.NodeState{{Name: "n1", Self: true}, {Name: "n2", Seen: time.Second},
			{Name: "n3", Seen: push.SilentNode + time.Second}},
		Logs: []bus.LogState{{Name: "l0", Leader: "n1", Last: 10, Followed: 10, Replicas: 3, Current: 3},
			{Name: "l1", Leader: "n2", Last: 20, Followed: 13, Replicas: 3, Current: 2}}}}
	return servertest.New(t, push.Config{Bus: bus, Node: "n1"})
}

// The console gets what this node sees, and what each node says of itself.
func TestClusterView(t *testing.T) {
	ts := newClusterServer(t, "")
	ts.Events("channel=news")
	var shown struct {
		Links []bus.NodeState
		Logs  []bus.LogState
		Nodes []struct {
			Name     string
			Clients  int `json:"num_clients"`
			Channels int `json:"num_channels"`
			Lag, Led int
			Hears    []string
		}
	}
	w := ts.Do("GET", "/console/cluster", "")
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil {
		t.Fatal(w.Code, err)
	}
	if len(shown.Links) != 3 || len(shown.Logs) != 2 || len(shown.Nodes) != 1 {
		t.Fatalf("the cluster is %s", w.Body)
	}
	n := shown.Nodes[0]
	if n.Name != "n1" || n.Clients != 1 || n.Channels != 1 || n.Lag != 7 || n.Led != 1 ||
		!slices.Equal(n.Hears, []string{"n2"}) {
		t.Errorf("the node is %+v", n)
	}
}

// A server on its own has no links and no logs: the console shows no cluster.
func TestClusterViewOfOneServer(t *testing.T) {
	w := servertest.New(t, push.Config{}).Do("GET", "/console/cluster", "")
	if !strings.HasPrefix(w.Body.String(), `{"problem":"","links":null,"logs":null,"nodes":[{`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A probe gets 503 with the cause while the node does not have what the others publish.
func TestHealthOfClusterNode(t *testing.T) {
	for problem, status := range map[string]int{"": 200, "the log l1 is not followed": 503} {
		w := newClusterServer(t, problem).Do("GET", "/health", "")
		if w.Code != status || !strings.Contains(w.Body.String(), problem) {
			t.Errorf("with the problem %q: %d %s", problem, w.Code, w.Body)
		}
	}
}

func TestMetricsOfClusterNode(t *testing.T) {
	for problem, ready := range map[string]string{"": "1", "the log l1 is not followed": "0"} {
		text := newClusterServer(t, problem).Do("GET", "/metrics", "").Body.String()
		for _, line := range []string{"myriad_cluster_ready " + ready, "myriad_cluster_nodes 2", "myriad_cluster_lag 7",
			"myriad_cluster_led 1"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("with the problem %q there is no line %q", problem, line)
			}
		}
	}
}

// A request that a cluster cannot carry out in time gets 503 in both modes. So a client that looks
// at the status only sends it again.
func TestAPIOfABusThatIsLate(t *testing.T) {
	// A context that a bus derives from its own may end with Canceled when the time is over.
	for _, err := range []error{
		context.DeadlineExceeded, context.Canceled, errors.Join(push.ErrUncertain, context.DeadlineExceeded),
	} {
		bus := lateToPublish{membus.New(membus.Config{}), err}
		ts := servertest.New(t, push.Config{Bus: bus, Namespaces: []push.Namespace{{HistorySize: 5}}})
		for _, mode := range []string{"", "transport"} {
			w := ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`, "X-Centrifugo-Error-Mode", mode)
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"code":100`) ||
				!strings.Contains(w.Body.String(), "again") {
				t.Errorf("%v, mode %q: %d %s", err, mode, w.Code, w.Body)
			}
		}
	}
}

// A bus waits for other nodes. After 15*time.Second its context ends with DeadlineExceeded, and the
// API answers 503.
func TestAPIOfABusThatWaits(t *testing.T) {
	bus := pushtest.WaitingBus{Bus: membus.New(membus.Config{}), Waits: make(chan struct{})}
	ts := servertest.New(t, push.Config{Bus: bus})
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`) }()
	<-bus.Waits
	ts.Clock.Advance(15 * time.Second)
	if w := <-answer; w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A node does not act on a question with a field of tomorrow, which may select fewer clients than
// the fields that it knows, and the node that asks says so.
func TestQuestionsOfALaterVersion(t *testing.T) {
	ts := servertest.New(t, push.Config{TokenSecret: tokentest.Secret})
	ann := ts.Client(jwt.MapClaims{"sub": "ann"})
	ask := func(body string) (answers int) {
		_, err := ts.Config().Bus.Ask(t.Context(), "disconnect", []byte(body), func(answer []byte) {
			if len(answer) > 0 {
				answers++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return answers
	}
	if answers := ask(`{"User":"ann","Code":3503,"Labels":{"room":"a"}}`); answers != 0 {
		t.Errorf("%d answers", answers)
	}
	ann.WantOpen(t, "a question with a selection that is not known")
	if log := ts.Log.String(); !strings.Contains(log, "Labels is not served") {
		t.Errorf("the log: %s", log)
	}
	// of another node, which does not understand
	ts.Config().Bus.Serve("disconnect", func([]byte) []byte { return nil })
	if count, err := ts.Disconnect(t.Context(), push.Target{User: "ann"}, answer.DisconnectForced); err != nil ||
		count != 1 ||
		!strings.Contains(ts.Log.String(), "have not understood the question") {
		t.Errorf("%d were disconnected, %v, the log: %s", count, err, ts.Log)
	}
}

type lateToPublish struct {
	bus.Bus
	err error
}

func (b lateToPublish) Publish(context.Context, bus.Topic, push.Publication) (push.Position, error) {
	return push.Position{}, b.err
}
