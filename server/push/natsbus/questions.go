package natsbus

import (
	"context"
	"fmt"
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
	inbox    *inbox
	nodes    *nodes
	services *services

	mu      sync.Mutex
	waiting map[chan string]struct{} // of the calls that ask: each gets the names of nodes that are back
}

// services are the questions that this node answers, by their kinds.
type services struct {
	mu     sync.Mutex
	served map[string]*service
}

// A service answers questions of one kind.
type service struct{ answer func(body []byte) []byte }

func newServices() *services { return &services{served: make(map[string]*service)} }

func newQuestions(i *inbox, n *nodes, s *services) *questions {
	return &questions{conn: i.conn, inbox: i, nodes: n, services: s, waiting: make(map[chan string]struct{})}
}

// open subscribes to the questions of other nodes: those for all, and those for this one.
func (q *questions) open() error {
	for _, subject := range []string{q.prefix + ".q.", q.subjectOf(q.node)} {
		if _, err := q.nc.Subscribe(subject+"*", q.receive); err != nil {
			return err
		}
	}
	return nil
}

// subjectOf begins the subjects of questions for one node.
func (q *questions) subjectOf(node string) string {
	return fmt.Sprintf("%s.n.%x.", q.prefix, hash64(node))
}

// tellReturned tells the calls that ask that a node is back: it may not have had their questions.
func (q *questions) tellReturned(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for returned := range q.waiting {
		select {
		case returned <- name:
		default: // as many have returned as there can be
		}
	}
}

// expectReturns returns what gets the names of nodes that are back, until drop is called.
func (q *questions) expectReturns() (returned chan string, drop func()) {
	returned = make(chan string, maxNodes)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[returned] = struct{}{}
	return returned, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, returned)
	}
}

// serve answers the questions of one kind by f, until another call for that kind or stop.
func (s *services) serve(kind string, f func(body []byte) []byte) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &service{f}
	s.served[kind] = one
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.served[kind] == one { // else another one has taken its place
			delete(s.served, kind)
		}
	}
}

// of returns what answers questions of one kind; nil: nothing does.
func (s *services) of(kind string) *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[kind]
}

func (q *questions) receive(m *nats.Msg) {
	kind, ok := channelOf(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if ok && m.Reply != "" {
		_ = q.nc.Publish(m.Reply, q.answer(kind, m.Data)) // the asking node counts this one as missing
	}
}

// answer returns the answer of this node: whether it serves the kind, its name, and what it says.
func (q *questions) answer(kind string, body []byte) []byte {
	s := q.services.of(kind)
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
// passed. A node that moves to another process meanwhile is asked once more when it is back.
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
		return false // also after NATS has said that no node listens: one may be back soon
	})
	defer drop()
	returned, dropReturned := q.expectReturns()
	defer dropReturned()
	if err := q.nc.PublishRequest(q.prefix+".q."+token, reply, body); err != nil {
		return nil, err
	}
	answered := make(map[string]bool)
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
			if answered[name] { // it was asked again, and had had the question
				continue
			}
			answered[name] = true
			delete(waiting, name)
			if served {
				each(r.rest)
			}
		case name := <-returned:
			if !waiting[name] {
				continue
			}
			if err := q.nc.PublishRequest(q.subjectOf(name)+token, reply, body); err != nil {
				return nil, err
			}
			timer.Reset(answerTime)
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
