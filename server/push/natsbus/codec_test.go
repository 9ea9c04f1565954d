package natsbus

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// What a reader accepts is what an append function has made of the same value; nothing panics, and
// no length makes it allocate more than the message has.
func FuzzMessages(f *testing.F) {
	f.Add(appendPublication(nil, &bus.Publication{Data: []byte("1"), User: "u", Tags: map[string]string{"a": "b"}}))
	f.Add(appendPublication(nil, &bus.Publication{Data: []byte("1"), Version: &bus.Version{Number: 300,
		Epoch: "e"}}))
	info := bus.ClientInfo{Client: "c", ConnInfo: []byte("{}")}
	f.Add(appendNotice(nil, &bus.Notice{ClientInfo: info, Joined: true}))
	f.Add(rollOf([]bus.ClientInfo{{Client: "1"}, {Client: "2", User: "u"}}, 1).append([]byte{'r'}))
	f.Add([]byte{'p', 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader{rest: bytes.Clone(data)}
		switch form(r.byte()) {
		case formPublication:
			if p := r.publication(); !r.wrong {
				again := reader{rest: appendPublication(nil, &p)[1:]}
				if q := again.publication(); again.wrong || !reflect.DeepEqual(p, q) {
					t.Errorf("%+v was read again as %+v", p, q)
				}
			}
		case formNotice:
			if n := r.notice(); !r.wrong {
				again := reader{rest: appendNotice(nil, &n)[1:]}
				if m := again.notice(); again.wrong || !reflect.DeepEqual(n, m) {
					t.Errorf("%+v was read again as %+v", n, m)
				}
			}
		case 'r':
			if l := r.roll(); !r.wrong {
				again := reader{rest: l.append(nil)}
				if m := again.roll(); again.wrong || !reflect.DeepEqual(l, m) {
					t.Errorf("%+v was read again as %+v", l, m)
				}
			}
		}
	})
}
