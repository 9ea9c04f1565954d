package load

import (
	"context"
	"errors"
	"os"
	"time"
)

// An arrival is a subscriber that comes when it is due, and leaves as soon as it is subscribed. Its
// lane takes it for a link whose request is to come and whose reply is that it is subscribed.
type arrival struct {
	linkState
	worker     *worker
	lane       *lane
	subscriber *subscriber
}

// expect gives the lanes the arrivals of this worker. Nothing is opened before they are due.
func (w *worker) expect() {
	w.arrivals = make([]arrival, w.places)
	w.audience.arrived = func(s *subscriber) { w.arrivals[s.number-w.audience.first].subscribed() }
	for i := range w.arrivals {
		k := &w.arrivals[i]
		*k = arrival{worker: w, lane: w.lanes[i%len(w.lanes)], subscriber: &w.audience.subscribers[i]}
		k.lane.opened(k)
	}
}

func (k *arrival) state() *linkState { return &k.linkState }

// send begins to open the connection.
func (k *arrival) send(time.Time) error {
	k.worker.tasks.Go(func() {
		if err := k.worker.openSubscriber(k.subscriber); err != nil {
			k.lane.replied(k, 1, 1, "connecting: "+reasonOf(err), false)
		}
	})
	return nil
}

// abort ends an attempt that has taken too long. One whose connection does not stand yet ends by
// itself.
func (k *arrival) abort(error) { k.worker.audience.leave(k.subscriber) }

// subscribed ends the visit. The arrival may come again when its connection has ended.
func (k *arrival) subscribed() {
	k.lane.answered(k, 1, 0, "")
	k.worker.audience.leave(k.subscriber)
}

// left is called when the connection has ended.
func (k *arrival) left(err error) {
	k.worker.audience.left(k.subscriber)
	if k.lane.expired(k) || errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	k.lane.replied(k, 1, 1, "connecting: "+reasonOf(err), false)
}
