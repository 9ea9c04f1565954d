package natsbus

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

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
