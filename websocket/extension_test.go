package websocket

import (
	"fmt"
	"strings"
	"testing"
)

var offerPolicies = map[string]deflatePolicy{"none": {on: true}, "full": {on: true, readBits: 15, writeBits: 15},
	"small": {on: true, readBits: 10, writeBits: 9}}

func TestAcceptExtension(t *testing.T) {
	offered := ""
	eachLine(t, "extensions.txt", func(word string, p *script) {
		if word == "offer" {
			if offered = p.all(); strings.HasPrefix(offered, `"`) { // for the blanks at its ends
				offered = strings.Trim(offered, `"`)
			}
			return
		}
		terms, ok := accept(offered, offerPolicies[word])
		bytesTerms, bytesOK := accept([]byte(offered), offerPolicies[word])
		if terms != bytesTerms || ok != bytesOK {
			t.Errorf("%s: %+v for a string and %+v for bytes", offered, terms, bytesTerms)
		}
		said := "declined"
		switch {
		case !ok:
			said = "malformed"
		case terms.agreed:
			said = string(terms.params().append(nil))
		}
		if want := p.all(); said != want {
			t.Errorf("%s, %s: answered %q, want %q", offered, word, said, want)
		}
	})
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
