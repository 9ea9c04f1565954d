package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// inBubble is what the overlay prints in a bubble of testing/synctest.
const inBubble = "others: in a bubble"

// A difference is a test that passes on net/http and not on ours.
type difference struct {
	program, pkg, test string
	result             string
	output             string
	again              string // what came when it was run again
}

// A tally counts the tests of a program.
type tally struct {
	tests    int // that pass on net/http
	pass     int // and on ours
	bubble   int // and run in a bubble, so on net/http in both cases
	broken   int // that fail on net/http
	expected int
	unsteady int
}

// compare finds the differences.
func compare(plain, ours outcomes) (same tally, differ []string) {
	names := plain.leaves()
	for _, name := range ours.leaves() {
		if plain[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	isLeaf := map[string]bool{}
	for _, n := range ours.leaves() {
		isLeaf[n] = true
	}
	for _, name := range names {
		p, o := plain[name], ours[name]
		switch {
		case p != nil && p.Result == "skip":
		case p != nil && p.Result != "pass":
			same.broken++
		case o == nil:
			top, _, _ := strings.Cut(name, "/")
			if t := ours[top]; t != nil && t.Result == "pass" {
				continue // names that differ from run to run
			}
			if p != nil {
				same.tests++
				differ = append(differ, name)
			}
		case o.Result == "pass" && strings.Contains(o.Output, inBubble):
			same.bubble++
		case p == nil && o.Result == "skip":
		case o.Result == "pass" || o.Result == "skip":
			same.tests++
			same.pass++
		default:
			same.tests++
			differ = append(differ, name)
		}
	}
	return same, differ
}

// again runs a test alone, three times on each side.
func again(plain, ours *binary, test string) (onPlain, onOurs int, err error) {
	top, _, _ := strings.Cut(test, "/")
	for range 3 {
		p, err := plain.run("^" + regexp.QuoteMeta(top) + "$")
		if err != nil {
			return 0, 0, err
		}
		o, err := ours.run("^" + regexp.QuoteMeta(top) + "$")
		if err != nil {
			return 0, 0, err
		}
		if r := p[test]; r != nil && r.Result == "pass" || p[test] == nil && p[top] != nil && p[top].Result == "pass" {
			onPlain++
		}
		if r := o[test]; r != nil && r.Result == "pass" {
			onOurs++
		}
	}
	return onPlain, onOurs, nil
}

func (d difference) String() string {
	return fmt.Sprintf("%s %s %s: %s%s", d.program, d.pkg, d.test, d.result, d.again)
}
