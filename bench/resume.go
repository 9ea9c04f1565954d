package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

func (s selection) newResults() *results {
	return &results{
		Format: resultsFormat, Began: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(),
		Rounds: s.rounds, Duration: s.duration.String(),
	}
}

// resume takes over what an interrupted run has saved, and leaves of the plans what it had not come
// to. A run on other terms, or on another machine, is no continuation.
func (s selection) resume(wanted bool, name string, plans []planned) (*results, []planned, error) {
	fresh := s.newResults()
	if !wanted {
		return fresh, plans, nil
	}
	if name == "" {
		return nil, nil, errors.New("--resume goes on with the file of --save: name it")
	}
	r, err := readResults(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fresh, plans, nil
	case err != nil:
		return nil, nil, err
	case r.Rounds != fresh.Rounds || r.Duration != fresh.Duration || r.Machine != fresh.Machine:
		return nil, nil, fmt.Errorf("%s has %d rounds of %s on %v, and this is a run of %d rounds of %s on %v: save "+
			"it elsewhere",
			name, r.Rounds, r.Duration, r.Machine, fresh.Rounds, fresh.Duration, fresh.Machine)
	}
	left := slices.DeleteFunc(slices.Clone(plans), func(p planned) bool {
		return slices.ContainsFunc(r.Scenarios, func(o outcome) bool { return o.Name == p.name })
	})
	return r, left, nil
}
