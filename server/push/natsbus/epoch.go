package natsbus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// This file decides in which epoch a log is. The epoch is a message of the log itself, under a
// subject of its own, so that every follower changes it at the same place in the order. It is
// replaced by compare-and-set on that subject.
//
// A log that has lost its end uses sequence numbers again. Then positions that clients hold would
// name other messages, so the epoch has to change. Three observations show the loss:
//
//   - A follower receives a sequence number that it has had, with a later time.
//   - The leader stays behind a follower.
//   - At its start, a node finds the log different from its seal, or has none and no node vouches.

const epochToken = "$e"

var errOtherEpoch = errors.New("another node has begun an epoch")

// agreeOnEpoch learns the log's epoch, or begins one. The follower is listening, so nothing stored
// from now on escapes it. With renew, the epoch that it knows is over.
func (f *follower) agreeOnEpoch(renew bool) error {
	old := f.epochNow()
	s, found, err := f.b.leaderGet(f.ctx, f.stream, directGet{Last: f.stored + epochToken})
	if err != nil {
		return err
	}
	epoch := ""
	if found {
		r := reader{rest: s.data}
		if form(r.byte()) != formEpoch {
			return errMalformed
		}
		if epoch = r.text(); epoch == "" {
			return errMalformed
		}
	}
	why := ""
	switch {
	case !found:
		why = "it is new"
	case renew && epoch == old:
		why = "it has lost its end"
	case !renew:
		if why, err = f.doubt(epoch); err != nil {
			return err
		}
	}
	if why != "" {
		if epoch, err = f.newEpoch(s.seq, why); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.epoch, f.epochAt = epoch, s.seq
	f.mu.Unlock()
	f.work.Lock()
	defer f.work.Unlock()
	if old != "" { // what came while the follower was not live is missing
		f.loseAll()
	}
	return nil
}

// newEpoch replaces the epoch that stands at sequence number at; 0: there is none.
func (f *follower) newEpoch(at uint64, why string) (string, error) {
	var random [8]byte
	rand.Read(random[:]) // it never fails
	epoch := hex.EncodeToString(random[:])
	if err := f.putEpoch(f.ctx, epoch, at); err != nil {
		return "", err
	}
	f.b.log.Info("natsbus: a log begins an epoch", "log", f.stream, "because", why)
	return epoch, nil
}

// putEpoch stores the epoch if the one at sequence number at is still the last.
func (f *follower) putEpoch(ctx context.Context, epoch string, at uint64) error {
	err := f.b.storeOnce(ctx, f.stored+epochToken, appendText([]byte{byte(formEpoch)}, epoch), at)
	if isCode(err, codeWrongLast, codeWrongLastOnly) {
		return errOtherEpoch
	}
	return err
}

// storeOnce stores a message if the last one with that subject has the sequence number last.
func (b *Bus) storeOnce(ctx context.Context, subject string, data []byte, last uint64) error {
	reply, g, drop := b.inbox.expect(firstOnly)
	defer drop()
	m := &nats.Msg{Subject: subject, Reply: reply, Data: data, Header: nats.Header{
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(last, 10)},
	}}
	if err := b.nc.PublishMsg(m); err != nil {
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

// doubt returns why the log may have lost its end while this node did not follow it, or "".
func (f *follower) doubt(epoch string) (why string, err error) {
	sealed, last, at, sameBoot := f.seal.read()
	if sealed == epoch {
		if why, err = f.differs(last, at); why != "" || err != nil {
			return why, err
		}
		// What a process has written survives it. If the machine has started again meanwhile, only
		// what was synced has survived.
		if sameBoot || f.b.config.Synced {
			return "", nil
		}
	}
	vouched := false
	_, err = f.b.ask(f.ctx, questionFollows, appendText(nil, f.stream), func(answer []byte) {
		r := reader{rest: answer}
		vouched = vouched || r.text() == epoch // which is never empty, as the answer of a node that does not know
	})
	switch {
	case err != nil:
		return "", err
	case vouched, sealed == "" && f.b.config.Synced:
		return "", nil
	case sealed != "" && sealed != epoch: // it has changed while this node was away
		return "", nil
	}
	return "no node has followed it without a break", nil
}

// differs returns why the log is not the one of which this node has had everything up to last.
func (f *follower) differs(last uint64, at int64) (string, error) {
	probe, _ := f.position()
	if probe <= last {
		return fmt.Sprintf("it ends with %d, and this node has had %d", probe-1, last), nil
	}
	s, found, err := f.b.leaderGet(f.ctx, f.stream, directGet{Seq: last})
	if err != nil {
		return "", err
	}
	if found && s.at != at {
		return fmt.Sprintf("message %d is another than the one that this node has had", last), nil
	}
	return "", nil
}

// vouch answers which epoch of a log this node follows.
func (b *Bus) vouch(body []byte) []byte {
	r := reader{rest: body}
	name := r.text()
	b.mu.Lock()
	f := b.byStream[name]
	b.mu.Unlock()
	if f == nil {
		return appendText(nil, "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.live:
		return appendText(nil, f.epoch)
	default:
		return appendText(nil, "")
	}
}

// marks is how many marks a log has within the time that positions are valid.
const marks = 24

func (f *follower) hearMark(at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.markAt = max(f.markAt, at)
}

// keepMarks stores a mark now and then, and the epoch again before it becomes too old. A mark is
// the only message with its subject, so that the log drops it for its age alone: while it is there,
// nothing after it was dropped for that reason. One node succeeds; the others learn of it.
func (f *follower) keepMarks() {
	every := max(f.b.config.PositionAge, f.id.keep.Age, minAge) / marks
	f.mu.Lock()
	due := time.Since(time.Unix(0, f.markAt)) > every
	epoch, at := f.epoch, f.epochAt
	f.mu.Unlock()
	if !due || every < time.Second {
		return
	}
	mark := f.stored + "$m." + strconv.FormatInt(time.Now().UnixNano()/int64(every), 10)
	_ = f.b.storeOnce(f.ctx, mark, []byte{byte(formMark)}, 0) // another node may be first; the next look tries again
	_ = f.putEpoch(f.ctx, epoch, at)
}
