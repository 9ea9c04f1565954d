package natsbus

import "testing"

// A tail has the messages of a subject after any place, those that have left it excepted.
func TestTail(t *testing.T) {
	var end tail
	end.reset(10)
	for seq := uint64(11); seq <= 30; seq++ {
		end.add(stored{subject: []string{"a", "b"}[seq%2], seq: seq})
	}
	for after, want := range map[uint64]int{0: 10, 10: 10, 11: 10, 12: 9, 29: 1, 30: 0, 99: 0} {
		list := end.of("a", after)
		if len(list) != want || want > 0 && (list[0].seq <= after || list[want-1].seq != 30) {
			t.Errorf("after %d: %d messages, want %d", after, len(list), want)
		}
	}
	for seq := uint64(31); seq <= 10+tailMessages+5; seq++ {
		end.add(stored{subject: "b", seq: seq})
	}
	if end.from != 15 || len(end.list) != tailMessages || end.of("a", 0)[0].seq != 16 {
		t.Errorf("it begins after %d and has %d messages", end.from, len(end.list))
	}
}
