package natsbus

import (
	"cmp"
	"slices"
)

// This file keeps the end of a log in memory. A direct get may be answered by a replica that is a
// little behind, and by another one than the get before: no check beforehand can exclude that. So
// what this node has received lately is read from here, and a replica is asked only for what is
// older. Clients that come back soon need no request at all.

const (
	// tailMessages and tailBytes bound the end of each log in memory; above them the oldest
	// message leaves it. At 700 messages a second it has 20 s. Clients of a node that has died are
	// back by then; otherwise hundreds of them would wait for one replica.
	tailMessages = 16_384
	tailBytes    = 4 << 20
	tailOverhead = 128 // of a message in memory, besides its texts
)

// A tail is the messages that a follower has received after from. The progress's mu guards it.
type tail struct {
	from  uint64
	list  []stored
	bytes int
}

// reset makes it begin after seq.
func (t *tail) reset(seq uint64) { *t = tail{from: seq} }

func (t *tail) add(s stored) {
	t.list = append(t.list, s)
	t.bytes += s.size()
	for len(t.list) > tailMessages || t.bytes > tailBytes && len(t.list) > 1 {
		t.from = t.list[0].seq
		t.bytes -= t.list[0].size()
		t.list[0] = stored{}
		t.list = t.list[1:]
	}
}

func (s *stored) size() int { return tailOverhead + len(s.subject) + len(s.id) + len(s.data) }

// of returns the messages after a sequence number with that subject.
func (t *tail) of(subject string, after uint64) (list []stored) {
	first, found := slices.BinarySearchFunc(t.list, after, func(s stored, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
	if found {
		first++
	}
	for i := first; i < len(t.list); i++ {
		if t.list[i].subject == subject {
			list = append(list, t.list[i])
		}
	}
	return list
}
