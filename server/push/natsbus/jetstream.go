package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A jetStream makes the calls of JetStream that the bus needs. What it returns was checked: an
// answer that lacks what JetStream always says is an error.
type jetStream struct{ *inbox }

// An apiError is an error of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("natsbus: JetStream: %s (%d)", e.Description, e.ErrCode)
}

// These are err_codes of JetStream.
const (
	codeStreamNotFound  = 10059
	codeStreamNameInUse = 10058
	codeWrongLast       = 10071 // "wrong last sequence": a compare-and-set has lost
	codeWrongLastOnly   = 10164 // the same, without the number
	codeNotFound        = 10037 // "no message found"
	codeInProcess       = 10158 // "duplicate message id is in process"
)

func isCode(err error, codes ...int) bool {
	var e *apiError
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.ErrCode == code {
			return true
		}
	}
	return false
}

// call makes a call of the JetStream API, and decodes the answer.
func (j *jetStream) call(ctx context.Context, subject string, body, answer any) error {
	msgs, err := j.request(ctx, "$JS.API."+subject, body, firstOnly)
	if err != nil {
		return err
	}
	return decode(msgs[0], answer)
}

// errNotUnderstood is returned for an answer that lacks what JetStream always says. Nothing may
// rely on it: without that check an empty object would say that a log has a quorum.
var errNotUnderstood = errors.New("natsbus: an answer is not one of JetStream")

// decode reads an answer of the JetStream API, which has a type.
func decode(m *nats.Msg, answer any) error {
	var head struct {
		Type string `json:"type"`
	}
	switch err := decodeAny(m, &head); {
	case err != nil:
		return err
	case head.Type == "":
		return errNotUnderstood
	case answer == nil:
		return nil
	}
	return json.Unmarshal(m.Data, answer)
}

// decodeAny reads an answer of JetStream, or returns the error in it.
func decodeAny(m *nats.Msg, answer any) error {
	if m.Header.Get("Status") == "503" { // no node serves the API: no JetStream, or no leader
		return errNoAnswer
	}
	var head struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &head); err != nil {
		return err
	}
	if head.Error != nil {
		return head.Error
	}
	return json.Unmarshal(m.Data, answer)
}

// A stored is a message of a log.
type stored struct {
	subject string
	seq     uint64
	at      int64 // nanoseconds since 1970, by the log's leader
	id      string
	data    []byte
}

// storedOf reads a republished message, or an answer to a direct get. They have the same headers.
func storedOf(m *nats.Msg) (s stored, err error) {
	s = stored{subject: m.Header.Get("Nats-Subject"), id: m.Header.Get("Nats-Msg-Id"), data: m.Data}
	if s.seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
		return s, errMalformed
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return s, errMalformed
	}
	s.at = at.UnixNano()
	return s, nil
}

// A directGet is the body of a direct get.
type directGet struct {
	Seq   uint64 `json:"seq,omitempty"`
	Last  string `json:"last_by_subj,omitempty"`
	Next  string `json:"next_by_subj,omitempty"`
	Batch int    `json:"batch,omitempty"`
}

// direct reads from a replica of the log, most often this node's own. It may be behind. pending is
// the number of messages after the last one returned.
func (j *jetStream) direct(ctx context.Context, stream string, q directGet) (list []stored, pending uint64, err error) {
	whole := firstOnly
	if q.Batch > 0 {
		whole = func(m *nats.Msg) bool { return m.Header.Get("Status") != "" }
	}
	msgs, err := j.request(ctx, "$JS.API.DIRECT.GET."+stream, q, whole)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range msgs {
		switch status := m.Header.Get("Status"); status {
		case "404":
			return nil, 0, nil
		case "204":
			pending, err = strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return list, pending, err
		case "":
			s, err := storedOf(m)
			if err != nil {
				return nil, 0, err
			}
			list = append(list, s)
		case "503":
			return nil, 0, errNoAnswer
		default:
			return nil, 0, fmt.Errorf("natsbus: a direct get was refused: %s %s", status, m.Header.Get("Description"))
		}
	}
	return list, 0, nil
}

// leaderGet reads one message from the log's leader. A message that is not there is no error.
func (j *jetStream) leaderGet(ctx context.Context, stream string, q directGet) (s stored, found bool, err error) {
	var answer struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Data    []byte    `json:"data"`
			Header  []byte    `json:"hdrs"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err = j.call(ctx, "STREAM.MSG.GET."+stream, q, &answer)
	if isCode(err, codeNotFound) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	m := answer.Message
	if m.Seq == 0 {
		return s, false, errNotUnderstood
	}
	s = stored{subject: m.Subject, seq: m.Seq, at: m.Time.UnixNano(), data: m.Data}
	for line := range strings.SplitSeq(string(m.Header), "\r\n") {
		if id, ok := strings.CutPrefix(line, "Nats-Msg-Id: "); ok {
			s.id = id
		}
	}
	return s, true, nil
}

// A streamInfo is what the log's leader says of it.
type streamInfo struct {
	Config struct {
		Replicas int `json:"num_replicas"`
	} `json:"config"`
	State struct {
		First uint64 `json:"first_seq"`
		Last  uint64 `json:"last_seq"`
	} `json:"state"`
	Cluster *struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Name    string        `json:"name"`
			Current bool          `json:"current"`
			Offline bool          `json:"offline"`
			Active  time.Duration `json:"active"` // since its leader has heard it
		} `json:"replicas"`
	} `json:"cluster"`
}

// silentAfter is how long a replica may be silent before it does not count.
const silentAfter = 5 * time.Second

// leadsAlone is the time within which a leader that is the only one has heard most replicas. It
// speaks to them every second. They elect another one after 4 s in which they have not heard it.
const leadsAlone = 3 * time.Second

// hasQuorum reports whether the leader hears enough replicas to store anything.
func (i *streamInfo) hasQuorum() bool { return i.heardMost(silentAfter) }

// heardMost reports whether the leader has heard most replicas, itself included, within that time.
func (i *streamInfo) heardMost(within time.Duration) bool {
	if i.Cluster == nil {
		return true
	}
	heard := 1
	for _, r := range i.Cluster.Replicas {
		if !r.Offline && r.Active < within {
			heard++
		}
	}
	return i.Cluster.Leader != "" && heard > (len(i.Cluster.Replicas)+1)/2
}

// ready returns the replicas besides the leader that have everything, without those that are unfit
// to lead.
func (i *streamInfo) ready(unfit map[string]bool) (names []string) {
	for _, r := range i.Cluster.Replicas {
		if r.Current && !r.Offline && r.Active < leadsAlone && !unfit[r.Name] {
			names = append(names, r.Name)
		}
	}
	return names
}

// isStoredBy reports whether that node is one of those that store the log.
func (i *streamInfo) isStoredBy(node string) bool {
	if i.Cluster == nil || i.Cluster.Leader == node {
		return true
	}
	for _, r := range i.Cluster.Replicas {
		if r.Name == node {
			return true
		}
	}
	return false
}

// missesWithout returns why the log would take no publications without that node, or nil. A log
// that one node stores would not, and is not meant.
func (i *streamInfo) missesWithout(node string, unfit map[string]bool) error {
	if i.Cluster == nil || i.Config.Replicas < 3 {
		return nil
	}
	if i.Cluster.Leader == "" {
		return errors.New("it has no leader")
	}
	unfit = maps.Clone(unfit)
	unfit[node] = true
	left := len(i.ready(unfit))
	if i.Cluster.Leader != node {
		left++
	}
	if left <= i.Config.Replicas/2 {
		return fmt.Errorf("only %d of its %d replicas would be left", left, i.Config.Replicas)
	}
	return nil
}

// info asks the log's leader.
func (j *jetStream) info(ctx context.Context, stream string) (i streamInfo, err error) {
	err = j.call(ctx, "STREAM.INFO."+stream, struct{}{}, &i)
	if err == nil && i.Config.Replicas == 0 {
		err = errNotUnderstood
	}
	return i, err
}

// storeOnce stores a message if the last one with that subject has the sequence number last.
func (j *jetStream) storeOnce(ctx context.Context, subject string, data []byte, last uint64) error {
	reply, g, drop := j.expect(firstOnly)
	defer drop()
	m := &nats.Msg{Subject: subject, Reply: reply, Data: data, Header: nats.Header{
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(last, 10)},
	}}
	if err := j.nc.PublishMsg(m); err != nil {
		return err
	}
	timer := time.NewTimer(requestTime)
	defer timer.Stop()
	select {
	case <-g.done:
		_, _, err := acknowledged(g.msgs[0])
		return err
	case <-timer.C:
		return errNoAnswer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acknowledged reads the log's answer to a message, which names the log and the message's number.
func acknowledged(m *nats.Msg) (seq uint64, duplicate bool, err error) {
	var ack struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if err = decodeAny(m, &ack); err == nil && (ack.Stream == "" || ack.Seq == 0) {
		err = errNotUnderstood
	}
	return ack.Seq, ack.Duplicate, err
}
