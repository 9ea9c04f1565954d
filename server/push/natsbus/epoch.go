package natsbus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
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

// An epochKeeper keeps the epoch of one log: it learns the epoch or begins one, and confirms it now
// and then.
type epochKeeper struct {
	*logName
	*jetStream
	questions *questions
	progress  *progress
	seal      seal
	synced    bool          // NATS syncs every message: see Config.Synced
	every     time.Duration // between two marks
	markAt    atomic.Int64  // time of the last mark
}

// newEpochKeeper returns the keeper of a log that keeps messages for maxAge. The caller must close
// its seal.
func newEpochKeeper(name *logName, j *jetStream, q *questions, p *progress, c Config,
	maxAge time.Duration) *epochKeeper {
	e := &epochKeeper{logName: name, jetStream: j, questions: q, progress: p, synced: c.Synced, every: maxAge / marks}
	e.seal.open(c.Dir, name.stream)
	return e
}

// agree learns the log's epoch, or begins one. The follower is listening, so nothing stored from
// now on escapes it. With renew, the epoch that it knows is over.
func (e *epochKeeper) agree(ctx context.Context, renew bool) error {
	s, found, err := e.leaderGet(ctx, e.stream, directGet{Last: e.stored + epochToken})
	if err != nil {
		return err
	}
	epoch := ""
	if found {
		if epoch, err = epochIn(s); err != nil {
			return err
		}
	}
	why := ""
	switch {
	case !found:
		why = "it is new"
	case renew && epoch == e.progress.epochNow():
		why = "it has lost its end"
	case !renew:
		if why, err = e.doubt(ctx, epoch); err != nil {
			return err
		}
	}
	if why != "" {
		if epoch, err = e.begin(ctx, s.seq, why); err != nil {
			return err
		}
	}
	e.progress.setEpoch(epoch, s.seq)
	return nil
}

// begin replaces the epoch that stands at sequence number at; 0: there is none.
func (e *epochKeeper) begin(ctx context.Context, at uint64, why string) (string, error) {
	var random [8]byte
	rand.Read(random[:]) // it never fails
	epoch := hex.EncodeToString(random[:])
	if err := e.put(ctx, epoch, at); err != nil {
		return "", err
	}
	e.log.Info("natsbus: a log begins an epoch", "log", e.stream, "because", why)
	return epoch, nil
}

// put stores the epoch if the one at sequence number at is still the last.
func (e *epochKeeper) put(ctx context.Context, epoch string, at uint64) error {
	err := e.storeOnce(ctx, e.stored+epochToken, appendText([]byte{byte(formEpoch)}, epoch), at)
	if isCode(err, codeWrongLast, codeWrongLastOnly) {
		return errOtherEpoch
	}
	return err
}

// doubt returns why the log may have lost its end while this node did not follow it, or "".
func (e *epochKeeper) doubt(ctx context.Context, epoch string) (why string, err error) {
	sealed, last, at, sameBoot := e.seal.read()
	if sealed == epoch {
		probe, _ := e.progress.position()
		if why, _, err = e.differs(ctx, probe, last, at); why != "" || err != nil {
			return why, err
		}
		// What a process has written survives it. If the machine has started again meanwhile, only
		// what was synced has survived.
		if sameBoot || e.synced {
			return "", nil
		}
	}
	vouched := false
	_, err = e.questions.ask(ctx, questionFollows, appendText(nil, e.stream), func(answer []byte) {
		r := reader{rest: answer}
		vouched = vouched || r.text() == epoch // which is never empty, as the answer of a node that does not know
	})
	switch {
	case err != nil:
		return "", err
	case vouched, sealed == "" && e.synced:
		return "", nil
	case sealed != "" && sealed != epoch: // it has changed while this node was away
		return "", nil
	}
	return "no node has followed it without a break", nil
}

// differs returns why the log is not the one of which this node has had everything up to last,
// whose time was at. probe is a message that was stored just now. If hasLast is false, the log has
// dropped that message, and only its epoch can say more.
func (e *epochKeeper) differs(ctx context.Context, probe, last uint64, at int64) (why string, hasLast bool, err error) {
	if probe <= last {
		return fmt.Sprintf("it ends with %d, and this node has had %d", probe-1, last), false, nil
	}
	s, hasLast, err := e.leaderGet(ctx, e.stream, directGet{Seq: last})
	if err != nil {
		return "", false, err
	}
	if hasLast && s.at != at {
		return fmt.Sprintf("message %d is another than the one that this node has had", last), true, nil
	}
	return "", hasLast, nil
}

// leaves returns why the log does not go on from a place, or "". An epoch that began after the
// place is no reason: the follower comes to it.
func (e *epochKeeper) leaves(ctx context.Context, probe uint64, from place) (string, error) {
	why, hasLast, err := e.differs(ctx, probe, from.last, from.lastAt)
	if why != "" || err != nil || hasLast {
		return why, err
	}
	s, found, err := e.leaderGet(ctx, e.stream, directGet{Last: e.stored + epochToken})
	switch {
	case err != nil:
		return "", err
	case !found:
		return "it has no epoch", nil
	case s.seq > from.last:
		return "", nil
	}
	epoch, err := epochIn(s)
	if err == nil && epoch != from.epoch {
		why = "another epoch began in what this node has had"
	}
	return why, err
}

// epochIn returns the epoch that a message says.
func epochIn(s stored) (string, error) {
	r := reader{rest: s.data}
	if form(r.byte()) != formEpoch {
		return "", errMalformed
	}
	epoch := r.text()
	if epoch == "" {
		return "", errMalformed
	}
	return epoch, nil
}

// marks is how many marks a log has within the time that positions are valid.
const marks = 24

// hearMark notes that the log has a mark of that time. The follower calls it.
func (e *epochKeeper) hearMark(at int64) { e.markAt.Store(max(e.markAt.Load(), at)) }

// keepMarks stores a mark now and then, and the epoch again before it becomes too old. A mark is
// the only message with its subject, so that the log drops it for its age alone: while it is there,
// nothing after it was dropped for that reason. One node succeeds; the others learn of it.
func (e *epochKeeper) keepMarks(ctx context.Context) {
	due := time.Since(time.Unix(0, e.markAt.Load())) > e.every
	epoch, at := e.progress.epochStored()
	if !due || e.every < time.Second {
		return
	}
	mark := e.stored + "$m." + strconv.FormatInt(time.Now().UnixNano()/int64(e.every), 10)
	_ = e.storeOnce(ctx, mark, []byte{byte(formMark)}, 0) // another node may be first; the next look tries again
	_ = e.put(ctx, epoch, at)
}
