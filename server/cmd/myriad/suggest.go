package main

import (
	"fmt"
	"maps"
	"slices"
)

// didYouMean returns a suggestion to append to an error about a name, or "" if no known name is
// similar.
func didYouMean(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// nearest returns the name with the smallest distance from written, which may be at most a third of
// its letters.
func nearest(written string, names []string) (near string) {
	least := max(len(written)/3, 1) + 1
	for _, name := range names {
		if d := distance(written, name); d < least {
			near, least = name, d
		}
	}
	return near
}

// distance counts missing, extra, wrong and swapped letters (optimal string alignment). An
// underscore equals a hyphen.
func distance(a, b string) int {
	row := func(i int) []int {
		r := make([]int, len(b)+1)
		r[0] = i
		return r
	}
	before, last := row(0), row(0)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now := row(i)
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] || a[i-1] == '_' && b[j-1] == '-' {
				wrong = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last = last, now
	}
	return last[len(b)]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
