package main

import (
	"cmp"
	"fmt"
	"slices"
)

// A unit is what a share has whole: a program, or a cut of one.
type unit struct {
	p    *program
	n    int // from 1; 0: all of the program
	run  string
	skip []string
}

func (u unit) String() string {
	if u.n == 0 {
		return u.p.name
	}
	return fmt.Sprintf("%s (%d of %d)", u.p.name, u.n, len(u.p.cuts)+1)
}

// units divides the programs.
func units(all []program) (us []unit) {
	for i := range all {
		p := &all[i]
		if len(p.cuts) == 0 {
			us = append(us, unit{p: p, run: p.tests})
			continue
		}
		for n := range len(p.cuts) + 1 {
			u := unit{p: p, n: n + 1, skip: slices.Clone(p.cuts[:n])}
			if n < len(p.cuts) {
				u.run = p.cuts[n]
			}
			us = append(us, u)
		}
	}
	return us
}

// usualSeconds is what a unit takes for which the table says nothing.
const usualSeconds = 8

// A share is one of n parts, counted from 1.
type share struct{ part, parts int }

func parseShare(text string) (s share, err error) {
	if _, err := fmt.Sscanf(text, "%d/%d", &s.part, &s.parts); err != nil || s.part < 1 || s.part > s.parts {
		return s, fmt.Errorf("a share is %q: use the form 3/8", text)
	}
	return s, nil
}

// of chooses the share's units. Each unit is in one share, and the shares take about equally long:
// the longest unit comes first, and goes to the share that has least.
func (s share) of(all []unit) (chosen []unit) {
	longest := slices.Clone(all)
	slices.SortStableFunc(longest, func(a, b unit) int { return cmp.Compare(b.seconds(), a.seconds()) })
	total := make([]int, s.parts)
	for _, u := range longest {
		at := slices.Index(total, slices.Min(total))
		total[at] += u.seconds()
		if at == s.part-1 {
			chosen = append(chosen, u)
		}
	}
	if s.parts == 1 {
		return all
	}
	return chosen
}

func (u unit) seconds() int { return cmp.Or(u.p.seconds, usualSeconds) }
