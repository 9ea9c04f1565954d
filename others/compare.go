package main

import (
	"slices"
	"strings"
)

// inBubble is what the overlay writes for a test in a bubble of testing/synctest.
const inBubble = "others: in a bubble"

// A tally counts tests that pass on net/http.
type tally struct {
	tests    int
	pass     int // they pass on ours, too
	expected int // they do not, and differences.txt says why
	chance   int // they do not, but did when they were run again
	broken   int // they do not pass on net/http; not among tests
	bubble   int // they run in a bubble, so on net/http in both cases; not among tests
}

func (t *tally) add(o tally) {
	t.tests += o.tests
	t.pass += o.pass
	t.expected += o.expected
	t.chance += o.chance
	t.broken += o.broken
	t.bubble += o.bubble
}

// compare counts, and names the tests that pass on net/http and not on ours.
func compare(plain, ours outcomes) (t tally, differ []string) {
	names := append(plain.leaves(), ours.leaves()...)
	for name, o := range ours { // behind its subtests
		if o.result == crashed || o.result == hung {
			names = append(names, name)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		p, o := plain[name], ours[name]
		top, _, _ := strings.Cut(name, "/")
		switch {
		case p == nil && (plain[top] == nil || plain[top].result != passed || o.result != failed):
			// The name has a number or an address in it, or the test has more subtests here.
		case p != nil && p.result == skipped:
		case p != nil && p.result != passed:
			t.broken++
		case o == nil && ours[top] != nil && ours[top].result == passed: // likewise
		case o == nil:
			t.tests++
			differ = append(differ, name)
		case o.result == passed && strings.Contains(o.output, inBubble):
			t.bubble++
		case o.result == passed || o.result == skipped:
			t.tests++
			t.pass++
		default:
			t.tests++
			differ = append(differ, name)
		}
	}
	return t, differ
}

// tries is how often a test is run again that has ended differently.
const tries = 3

// again runs one test alone on both sides, and counts how often it passes.
func again(plain, ours *binary, test string) (onPlain, onOurs int, err error) {
	for range tries {
		for _, side := range []struct {
			b *binary
			n *int
		}{{plain, &onPlain}, {ours, &onOurs}} {
			got, err := side.b.run(exactly(test))
			if err != nil {
				return 0, 0, err
			}
			if o := got[test]; o != nil && o.result == passed {
				*side.n++
			}
		}
	}
	return onPlain, onOurs, nil
}
