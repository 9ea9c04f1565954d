package websocket

import (
	"fmt"
	"testing"
)

const answerDeclined, answerMalformed = "declined", "malformed"

// An offer is what a client says in Sec-WebSocket-Extensions, and what a server of this policy
// answers.
type offer struct {
	line string
	want deflatePolicy
	said string
}

var (
	nonePolicy  = deflatePolicy{on: true}
	fullPolicy  = deflatePolicy{on: true, readBits: 15, writeBits: 15}
	smallPolicy = deflatePolicy{on: true, readBits: 10, writeBits: 9}
)

var offers = []offer{
	{"permessage-deflate", nonePolicy, "permessage-deflate; server_no_context_takeover; client_no_context_takeover"},
	{"permessage-deflate; client_max_window_bits", nonePolicy,
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover"},
	{"permessage-deflate; server_max_window_bits=8", nonePolicy,
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=8"},
	{"permessage-deflate", fullPolicy, "permessage-deflate"},
	{"Permessage-Deflate ;Client_Max_Window_Bits ", fullPolicy, "permessage-deflate"},
	{"permessage-deflate; client_max_window_bits=12", fullPolicy, "permessage-deflate; client_max_window_bits=12"},
	{"permessage-deflate; server_no_context_takeover", fullPolicy, "permessage-deflate; server_no_context_takeover"},
	{"permessage-deflate; client_no_context_takeover", fullPolicy, "permessage-deflate; client_no_context_takeover"},
	{"permessage-deflate; server_max_window_bits=10", fullPolicy, "permessage-deflate; server_max_window_bits=10"},
	{`permessage-deflate; server_max_window_bits="10"`, fullPolicy, "permessage-deflate; server_max_window_bits=10"},
	{"permessage-deflate", smallPolicy, "permessage-deflate; client_no_context_takeover; server_max_window_bits=9"},
	{"permessage-deflate; client_max_window_bits", smallPolicy,
		"permessage-deflate; server_max_window_bits=9; client_max_window_bits=10"},
	{"permessage-deflate; client_max_window_bits=8; server_max_window_bits=15", smallPolicy,
		"permessage-deflate; server_max_window_bits=9; client_max_window_bits=8"},

	{"", fullPolicy, answerDeclined},
	{"x-webkit-deflate-frame", fullPolicy, answerDeclined},
	{"permessage-deflate; server_max_window_bits", fullPolicy, answerDeclined},
	{"permessage-deflate; server_max_window_bits=7", fullPolicy, answerDeclined},
	{"permessage-deflate; server_max_window_bits=16", fullPolicy, answerDeclined},
	{"permessage-deflate; server_max_window_bits=08", fullPolicy, answerDeclined},
	{"permessage-deflate; server_max_window_bits=10; server_max_window_bits=10", fullPolicy, answerDeclined},
	{"permessage-deflate; client_max_window_bits=x", fullPolicy, answerDeclined},
	{"permessage-deflate; client_max_window_bits; client_max_window_bits=15", fullPolicy, answerDeclined},
	{"permessage-deflate; server_no_context_takeover=1", fullPolicy, answerDeclined},
	{"permessage-deflate; client_no_context_takeover; client_no_context_takeover", fullPolicy, answerDeclined},
	{"permessage-deflate; unknown", fullPolicy, answerDeclined},

	// An offer may come in several forms, of which the first that can be accepted is.
	{"permessage-deflate; unknown, permessage-deflate; server_max_window_bits=11, permessage-deflate", fullPolicy,
		"permessage-deflate; server_max_window_bits=11"},
	{"foo; bar=baz; q=\"x\" , , permessage-deflate", fullPolicy, "permessage-deflate"},

	{"permessage-deflate;", fullPolicy, answerMalformed},
	{"permessage-deflate; server_max_window_bits=", fullPolicy, answerMalformed},
	{"permessage-deflate; =10", fullPolicy, answerMalformed},
	{`permessage-deflate; server_max_window_bits="10`, fullPolicy, answerMalformed},
	{`permessage-deflate; server_max_window_bits=""`, fullPolicy, answerMalformed},
	{"permessage-deflate server_max_window_bits", fullPolicy, answerMalformed},
	{"; permessage-deflate", fullPolicy, answerMalformed},
	{"permessage@deflate", fullPolicy, answerMalformed},
}

func TestAcceptExtension(t *testing.T) {
	for _, c := range offers {
		terms, ok := accept(c.line, c.want)
		bytesTerms, bytesOK := accept([]byte(c.line), c.want)
		if terms != bytesTerms || ok != bytesOK {
			t.Errorf("%s: %+v for a string and %+v for bytes", c.line, terms, bytesTerms)
		}
		said := answerDeclined
		switch {
		case !ok:
			said = answerMalformed
		case terms.agreed:
			said = string(terms.params().append(nil))
		}
		if said != c.said {
			t.Errorf("%s: answered %q, want %q", c.line, said, c.said)
		}
	}
}

func policies() (all []deflatePolicy) {
	for _, read := range []uint8{0, 8, 9, 12, 15} {
		for _, write := range []uint8{0, 8, 10, 15} {
			all = append(all, deflatePolicy{on: true, readBits: read, writeBits: write})
		}
	}
	return all
}

// Whatever two sides want, they agree, and each expects of the other no less than that does.
func TestBothSidesAgree(t *testing.T) {
	for _, client := range policies() {
		for _, server := range policies() {
			name := fmt.Sprintf("client %+v, server %+v", client, server)
			s, ok := accept(string(client.offer().append(nil)), server)
			if !ok || !s.agreed {
				t.Fatalf("%s: declined", name)
			}
			e, next := nextExtension(string(s.params().append(nil)), 0)
			if next < 0 || e.invalid || !e.isDeflate {
				t.Fatalf("%s: the answer %q cannot be read", name, s.params().append(nil))
			}
			c, ok := client.confirm(e.params)
			if !ok {
				t.Fatalf("%s: the client refuses %q", name, s.params().append(nil))
			}
			for _, way := range []struct{ out, in deflateTerms }{{c, s}, {s, c}} {
				if way.out.outTakeover && (!way.in.inTakeover || way.out.outBits > way.in.inBits) {
					t.Fatalf("%s: one side refers to %+v, the other keeps %+v", name, way.out, way.in)
				}
			}
			for side, k := range map[deflatePolicy]deflateTerms{client: c, server: s} {
				if k.outTakeover && (side.writeBits == 0 || k.outBits > side.writeBits) || k.inTakeover &&
					(side.readBits == 0 || k.inBits > side.readBits) {
					if client != server {
						t.Fatalf("%s: %+v keeps %+v", name, side, k)
					}
				}
			}
		}
	}
}

func TestClientRefusesAcceptance(t *testing.T) {
	for _, c := range []struct {
		want   deflatePolicy
		answer deflateParams
		ok     bool
	}{
		{deflatePolicy{on: true}, deflateParams{serverNoTakeover: true}, true},
		{deflatePolicy{on: true}, deflateParams{}, false}, // it was asked for server_no_context_takeover
		{deflatePolicy{on: true}, deflateParams{serverNoTakeover: true, clientNoTakeover: true, serverBits: 9,
			clientBits: 9}, true},
		{deflatePolicy{on: true}, deflateParams{serverNoTakeover: true, clientBits: anyBits}, false},
		{deflatePolicy{on: true, readBits: 10}, deflateParams{}, false}, // it was asked for server_max_window_bits
		{deflatePolicy{on: true, readBits: 10}, deflateParams{serverBits: 11}, false},
		{deflatePolicy{on: true, readBits: 10}, deflateParams{serverBits: 9}, true},
		{deflatePolicy{on: true, readBits: 15, writeBits: 15}, deflateParams{clientNoTakeover: true}, true},
		{deflatePolicy{on: true, readBits: 15, writeBits: 9}, deflateParams{clientBits: 15}, true},
	} {
		terms, ok := c.want.confirm(c.answer)
		if ok != c.ok {
			t.Errorf("%+v confirms %+v: %v", c.want, c.answer, ok)
		}
		if ok && terms.outTakeover && terms.outBits > c.want.writeBits {
			t.Errorf("%+v would keep %+v", c.want, terms)
		}
	}
}

func FuzzExtension(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits, foo; bar=\"baz\"")
	f.Add("permessage-deflate; server_max_window_bits=10;client_no_context_takeover ,,")
	f.Fuzz(func(t *testing.T, line string) {
		for _, want := range policies() {
			terms, ok := accept(line, want)
			if !ok || !terms.agreed {
				continue
			}
			if again, ok := accept(string(terms.params().append(nil)),
				deflatePolicy{on: true, readBits: 15, writeBits: 15}); !ok || !again.agreed {
				t.Fatalf("our answer %q cannot be read", terms.params().append(nil))
			}
			if terms.outBits < minWindowBits || terms.outBits > maxWindowBits || terms.inBits < minWindowBits ||
				terms.inBits > maxWindowBits {
				t.Fatalf("terms %+v", terms)
			}
		}
	})
}
