package natsbus

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// These are the kinds of questions of this package; kinds of Bus.Serve begin with a dash.
const (
	questionPresent = "present"
	questionFollows = "follows"
)

// answerTime is how long a node that asks waits for another one.
const answerTime = 2 * time.Second

// questions asks all nodes, and answers what other nodes ask.
type questions struct {
	*conn
	inbox *inbox
	nodes *nodes

	mu     sync.Mutex
	served map[string]*service
}

// A service answers questions of one kind.
type service struct{ answer func(body []byte) []byte }

func newQuestions(i *inbox, n *nodes) *questions {
	return &questions{conn: i.conn, inbox: i, nodes: n, served: make(map[string]*service)}
}

// open subscribes to the questions of other nodes.
func (q *questions) open() error {
	_, err := q.nc.Subscribe(q.prefix+".q.*", q.receive)
	return err
}

// serve answers the questions of one kind by f, until another call for that kind or stop.
func (q *questions) serve(kind string, f func(body []byte) []byte) (stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := &service{f}
	q.served[kind] = one
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.served[kind] == one { // else another one has taken its place
			delete(q.served, kind)
		}
	}
}

func (q *questions) receive(m *nats.Msg) {
	kind, ok := channelOf(strings.TrimPrefix(m.Subject, q.prefix+".q."))
	if ok && m.Reply != "" {
		_ = q.nc.Publish(m.Reply, q.answer(kind, m.Data)) // the asking node counts this one as missing
	}
}

// answer returns the answer of this node: whether it serves the kind, its name, and what it says.
func (q *questions) answer(kind string, body []byte) []byte {
	q.mu.Lock()
	s := q.served[kind]
	q.mu.Unlock()
	served, said := byte(0), []byte(nil)
	if s != nil {
		served, said = 1, s.answer(slices.Clone(body))
	}
	return append(appendText([]byte{byte(formAnswer), served}, q.node), said...)
}

// askAll asks all nodes, this one included: see ask.
func (q *questions) askAll(ctx context.Context, kind string, body []byte, each func([]byte)) ([]string, error) {
	missing, err := q.ask(ctx, kind, body, each)
	if err != nil {
		return nil, err
	}
	r := reader{rest: q.answer(kind, body)}
	r.byte()
	if served := r.byte() == 1; served {
		r.text()
		each(r.rest)
	}
	return missing, nil
}

// ask asks all other nodes. It returns when each that is alive has answered, or answerTime has
// passed.
func (q *questions) ask(ctx context.Context, kind string, body []byte, each func([]byte)) (missing []string,
	err error) {
	token, err := tokenOf(kind)
	if err != nil {
		return nil, err
	}
	waiting := q.nodes.alive()
	if len(waiting) == 0 && kind != questionFollows { // a node that starts does not know the others yet
		return nil, nil
	}
	answers := make(chan []byte, maxNodes)
	reply, _, drop := q.inbox.expect(func(m *nats.Msg) bool {
		select {
		case answers <- m.Data:
		default: // more answers than nodes
		}
		return m.Header.Get("Status") == "503"
	})
	defer drop()
	if err := q.nc.PublishRequest(q.prefix+".q."+token, reply, body); err != nil {
		return nil, err
	}
	patience := answerTime
	if len(waiting) == 0 {
		patience = beatEvery
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	starting := len(waiting) == 0
	for starting || len(waiting) > 0 {
		select {
		case data := <-answers:
			r := reader{rest: data}
			isAnswer, served, name := form(r.byte()) == formAnswer, r.byte() == 1, r.text()
			if !isAnswer || r.wrong { // NATS says that no node listens
				starting = false
				continue
			}
			delete(waiting, name)
			if served {
				each(r.rest)
			}
		case <-timer.C:
			for name := range waiting {
				missing = append(missing, name)
			}
			slices.Sort(missing)
			return missing, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.closing:
			return nil, bus.ErrClosed
		}
	}
	return nil, nil
}
