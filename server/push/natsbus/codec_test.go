package natsbus

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

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

// Every channel's name becomes one token, which has nothing that NATS understands.
func TestTokens(t *testing.T) {
	for _, name := range []string{"a", "A", "a.b", "*", ">", "$e", "$m.1", "a b", "\r\n", "\x00", "ä",
		strings.Repeat("x", maxName)} {
		token, err := tokenOf(name)
		if err != nil || strings.ContainsAny(token, ".*> \r\n\t$\x00") {
			t.Errorf("%q becomes %q, %v", name, token, err)
		}
		if back, ok := channelOf(token); !ok || back != name {
			t.Errorf("%q comes back as %q", name, back)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", maxName+1)} {
		if _, err := tokenOf(name); err == nil {
			t.Errorf("a name of %d bytes is accepted", len(name))
		}
	}
	for _, token := range []string{"", "$e", "$m.1", "a=", "@"} {
		if name, ok := channelOf(token); ok {
			t.Errorf("%q is the channel %q", token, name)
		}
	}
}

func TestStreamNames(t *testing.T) {
	id := logID{bus.Retention{Size: 100, Age: 5 * time.Minute}, 2, 3}
	name := id.stream("myriad")
	if back, ok := parseStream("myriad", name); !ok || back != id {
		t.Errorf("%s is %+v, %v", name, back, ok)
	}
	for _, wrong := range []string{"", "myriad", "other_H_100x300000000000x3_2", "myriad_H_100x300000000000x3_3",
		"myriad_H_0x300000000000x3_2", "myriad_H_100x300000000000x3_02", "myriad_H_+100x300000000000x3_2", "KV_a"} {
		if id, ok := parseStream("myriad", wrong); ok {
			t.Errorf("%q is the log %+v", wrong, id)
		}
	}
}

// A seal is read as it was written, and a damaged one is none.
func TestSeal(t *testing.T) {
	dir := t.TempDir()
	var s seal
	s.open(dir, "log")
	if epoch, _, _, _ := s.read(); epoch != "" {
		t.Errorf("a new seal has the epoch %q", epoch)
	}
	for i := range uint64(300) {
		s.write("epoch", i*i*i, int64(i))
	}
	s.close()
	var again seal
	again.open(dir, "log")
	defer again.close()
	epoch, last, at, same := again.read()
	if epoch != "epoch" || last != 299*299*299 || at != 299 || same != (again.boot != "") {
		t.Errorf("read %q %d %d %v", epoch, last, at, same)
	}
	if _, err := again.file.WriteAt([]byte{1}, 7); err != nil {
		t.Fatal(err)
	}
	if epoch, _, _, _ := again.read(); epoch != "" {
		t.Errorf("a damaged seal has the epoch %q", epoch)
	}
	again.boot = "another"
	again.write("epoch", 1, 1)
	again.boot = "next"
	if _, _, _, same := again.read(); same {
		t.Error("after another boot, it is the same")
	}
}
