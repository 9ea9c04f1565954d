package handoff

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// This file is docs/adr/0010 as a model: one loop with its tasks, their goroutines and the monitor,
// in steps of single memory accesses (or critical sections), and an exploration of every order in
// which the steps can come.

const (
	modelTasks      = 3
	modelGoroutines = modelTasks + 1 // each handoff starts one, and each task is overtaken at most once
	nobody          = -1
)

// A conduct is what a task does.
type conduct int8

const (
	quickly    conduct = iota // returns
	waiting                   // returns only after the loop has been handed off
	handingOff                // hands the loop off, then goes on
	lateHelper                // has a goroutine of its own call HandOff, at any time, even after it has returned
	exiting                   // ends its goroutine
)

// What a goroutine does next. Those from owning on own the loop.
type pc int8

const (
	unborn pc = iota
	running
	handing // HandOff's swap
	starting
	writing
	leaving
	lost // Returned(false)
	dead
	owning pc = iota + 8 // takes the next task, or polls
	storing
	looking // whether the monitor is parked: owns nothing, but is not a task either
	unparking
	kept // Returned(true)
	keptSettle
	overtaken
	overtakenSettle
)

// exclusive reports whether the goroutine may touch the loop's fields.
func (p pc) exclusive() bool { return p >= owning && p != looking && p != unparking }

type modelGoroutine struct {
	at    pc
	token int8
	task  int8
}

// What the monitor does next.
type watch int8

const (
	watching watch = iota
	taking
	launching
	parking
	checking
	unparkingItself
	sleeping
)

// A modelState is everything there is at one moment.
type modelState struct {
	word    int8
	next    int8 // task, in the loop's list
	current int8
	gs      [modelGoroutines]modelGoroutine
	born    int8

	monitor        watch
	seen           int8
	idle           bool
	parked, permit bool

	helper      [modelTasks]int8 // the token of a lateHelper's goroutine that has yet to call HandOff
	helperStart bool             // it has succeeded and starts a goroutine

	queued, linked [modelTasks]bool // the conn of each task
	runs, returns  [modelTasks]int8
	broken         bool // what cannot be
}

// A mistake is a mutant of the protocol.
type mistake int8

const (
	noMistake mistake = iota
	leavesByStore
	leavesWithoutLooking // assumes that it still owns the loop
	parksWithoutLooking
	looksBeforeStoring
	reusesWords
	takesWithoutSettling
	settlesBeforeCurrent // the new owner flushes before the conn ceases to be current
	lostTouchesLoop      // clears current after a handoff
	exitsWithTheLoop     // a task's Goexit does not pass the loop on
)

type model struct {
	tasks   []conduct // at most modelTasks
	mistake mistake
}

func (m *model) start() modelState {
	s := modelState{current: nobody}
	s.gs[0].at = owning
	s.born = 1
	return s
}

// spawn starts a goroutine that owns the loop.
func (s *modelState) spawn(g modelGoroutine) {
	if int(s.born) == len(s.gs) {
		s.broken = true
		return
	}
	s.gs[s.born] = g
	s.born++
}

// swap is the compare-and-swap that ends an odd word.
func (m *model) swap(s *modelState, token int8) bool {
	if s.word != token {
		return false
	}
	s.word++
	if m.mistake == reusesWords {
		s.word -= 2
	}
	return true
}

// write is a critical section of the conn's: it queues, and links the conn unless it is current.
func (s *modelState) write(task int8) {
	s.queued[task] = true
	if s.current != task {
		s.linked[task] = true
	}
}

// step lets goroutine i make its next step. It reports false if it cannot.
func (m *model) step(s *modelState, i int) bool {
	g := &s.gs[i]
	switch g.at {
	case unborn, dead:
		return false
	case owning:
		return m.own(s, g)
	case storing:
		s.word++
		g.token = s.word
		g.at = looking
		if m.mistake == looksBeforeStoring {
			m.enter(s, g)
		}
	case looking:
		switch {
		case s.parked:
			g.at = unparking
		case m.mistake == looksBeforeStoring:
			g.at = storing
		default:
			m.enter(s, g)
		}
	case unparking:
		s.permit = s.permit || s.parked
		s.parked = false
		if m.mistake == looksBeforeStoring {
			g.at = storing
			return true
		}
		m.enter(s, g)
	case running:
		return m.run(s, g)
	case handing:
		g.at = writing
		if m.swap(s, g.token) {
			g.at = starting
		}
	case starting:
		s.spawn(modelGoroutine{at: overtaken})
		g.at = writing
	case writing:
		s.write(g.task)
		g.at = leaving
	case leaving:
		m.leave(s, g)
	default:
		return m.stepAfter(s, g)
	}
	return true
}

// stepAfter is what comes after a task.
func (m *model) stepAfter(s *modelState, g *modelGoroutine) bool {
	switch g.at {
	case lost:
		s.returns[g.task]++
		s.write(g.task) // Notify
		if m.mistake == lostTouchesLoop {
			s.current = nobody
		}
		g.at = dead
	case kept:
		s.returns[g.task]++
		s.current = nobody
		g.at = keptSettle
	case keptSettle:
		s.queued[g.task] = false
		g.at = owning
	case overtaken:
		if g.task = s.current; g.task == nobody {
			s.broken = true
			return true
		}
		switch m.mistake {
		case takesWithoutSettling:
			s.current = nobody
			g.at = owning
		case settlesBeforeCurrent:
			s.queued[g.task] = false
			g.at = overtakenSettle
		default:
			s.current = nobody
			g.at = overtakenSettle
		}
	case overtakenSettle:
		if m.mistake == settlesBeforeCurrent {
			s.current = nobody
		} else {
			s.queued[g.task] = false
		}
		g.at = owning
	}
	return true
}

// own is a step of the owner: the next task, or the list of dirty conns.
func (m *model) own(s *modelState, g *modelGoroutine) bool {
	for c := range s.linked {
		if s.linked[c] {
			s.linked[c], s.queued[c] = false, false
			return true
		}
	}
	if int(s.next) == len(m.tasks) {
		return false
	}
	g.task, s.current = s.next, s.next
	s.next++
	g.at = storing
	if m.mistake == looksBeforeStoring {
		g.at = looking
	}
	return true
}

func (m *model) enter(s *modelState, g *modelGoroutine) {
	s.runs[g.task]++
	g.at = running
	if m.tasks[g.task] == lateHelper {
		s.helper[g.task] = g.token
	}
}

func (m *model) run(s *modelState, g *modelGoroutine) bool {
	switch m.tasks[g.task] {
	case waiting:
		if s.word == g.token {
			return false
		}
		g.at = writing
	case handingOff:
		g.at = handing
	default:
		g.at = writing
	}
	return true
}

func (m *model) leave(s *modelState, g *modelGoroutine) {
	switch {
	case m.mistake == leavesByStore:
		s.word = g.token + 1
		g.at = kept
	case m.mistake == leavesWithoutLooking:
		m.swap(s, g.token)
		g.at = kept
	case !m.swap(s, g.token):
		g.at = lost
	case m.tasks[g.task] == exiting && m.mistake == exitsWithTheLoop:
		g.at = dead
	case m.tasks[g.task] == exiting: // the next goroutine does what this one would have done
		s.spawn(modelGoroutine{at: kept, task: g.task})
		g.at = dead
	default:
		g.at = kept
	}
}

// watch lets the monitor make its next step. What it does in a tick without news leads to a state
// that was seen already.
func (m *model) watch(s *modelState) bool {
	switch s.monitor {
	case watching:
		w := s.word
		odd := w%2 != 0
		switch {
		case odd && w == s.seen:
			s.monitor = taking
		case odd || w != s.seen:
			s.seen, s.idle = w, false
		case !s.idle:
			s.idle = true
		default:
			s.monitor = parking
		}
	case taking:
		s.monitor = watching
		if m.swap(s, s.seen) {
			s.monitor = launching
		}
	case launching:
		s.spawn(modelGoroutine{at: overtaken})
		s.monitor = watching
	case parking:
		s.parked = true
		s.monitor = checking
		if m.mistake == parksWithoutLooking {
			s.monitor = sleeping
		}
	case checking:
		s.monitor = sleeping
		if s.word != s.seen {
			s.monitor = unparkingItself
		}
	case unparkingItself:
		s.parked = false
		s.monitor = watching
	case sleeping:
		if !s.permit {
			return false
		}
		s.permit, s.parked, s.idle = false, false, false
		s.monitor = watching
	}
	return true
}

// help lets the goroutine of a lateHelper call HandOff.
func (m *model) help(s *modelState, task int) bool {
	if s.helperStart {
		s.spawn(modelGoroutine{at: overtaken})
		s.helperStart = false
		return true
	}
	if s.helper[task] == 0 {
		return false
	}
	s.helperStart = m.swap(s, s.helper[task])
	s.helper[task] = 0
	return true
}

// wrong says what must never be.
func (s *modelState) wrong() error {
	owners := 0
	for _, g := range s.gs {
		if g.at.exclusive() {
			owners++
		}
	}
	if owners > 1 {
		return fmt.Errorf("%d owners", owners)
	}
	for i := range modelTasks {
		if s.runs[i] > 1 || s.returns[i] > 1 {
			return fmt.Errorf("task %d: %d runs, returned %d times", i, s.runs[i], s.returns[i])
		}
	}
	if s.broken {
		return errors.New("a goroutine too many, or one that took over from nobody")
	}
	return nil
}

// done is how it must be able to end: the loop has an owner, every task has returned once, and
// nothing that was written waits.
func (m *model) done(s *modelState) bool {
	owners := 0
	for _, g := range s.gs {
		if g.at.exclusive() {
			owners++
		} else if g.at != unborn && g.at != dead {
			return false
		}
	}
	for i := range m.tasks {
		if s.runs[i] != 1 || s.returns[i] != 1 || s.queued[i] || s.linked[i] {
			return false
		}
	}
	return owners == 1
}

func (m *model) successors(s modelState) (all []modelState) {
	try := func(step func(s *modelState) bool) {
		if t := s; step(&t) {
			all = append(all, t)
		}
	}
	for i := range s.gs {
		try(func(t *modelState) bool { return m.step(t, i) })
	}
	for i := range modelTasks {
		try(func(t *modelState) bool { return m.help(t, i) })
	}
	try(m.watch)
	return all
}

// canonical is the state that stands for all which differ from s in nothing that can ever show:
// goroutines are told apart by what they do next and not by their number, those that are dead do
// nothing, and a token or a look that is out of date is as good as any other. Where words come
// twice nothing is out of date.
func (m *model) canonical(s modelState) modelState {
	current := func(token int8) int8 {
		if token == s.word || m.mistake == leavesByStore || m.mistake == reusesWords {
			return token
		}
		return 0
	}
	gs := s.gs[:]
	for i := range gs {
		gs[i].token = current(gs[i].token)
		if gs[i].at == dead {
			gs[i] = modelGoroutine{}
		}
	}
	slices.SortFunc(gs, func(a, b modelGoroutine) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.task, a.task), cmp.Compare(b.token, a.token))
	})
	for i := range s.helper {
		s.helper[i] = current(s.helper[i])
	}
	if current(s.seen) == 0 && s.word != 0 {
		s.seen = nobody
	}
	return s
}

// explore visits every state. Each must be right, and from each the end must be within reach: else
// something was lost.
func (m *model) explore() (states int, err error) {
	all := []modelState{m.canonical(m.start())}
	number := map[modelState]int32{all[0]: 0}
	var steps [][2]int32 // from, to
	var ends []int32
	for i := 0; i < len(all); i++ {
		s := all[i]
		if err := s.wrong(); err != nil {
			return len(all), fmt.Errorf("%v in %+v", err, s)
		}
		if m.done(&s) {
			ends = append(ends, int32(i))
		}
		for _, t := range m.successors(s) {
			t = m.canonical(t)
			to, seen := number[t]
			if !seen {
				to = int32(len(all))
				number[t] = to
				all = append(all, t)
			}
			steps = append(steps, [2]int32{int32(i), to})
		}
	}
	if i := stranded(len(all), steps, ends); i >= 0 {
		return len(all), fmt.Errorf("no way to the end from %+v", all[i])
	}
	return len(all), nil
}

// stranded finds a state from which no steps lead to one of the ends; -1: there is none.
func stranded(states int, steps [][2]int32, ends []int32) int {
	slices.SortFunc(steps, func(a, b [2]int32) int { return cmp.Compare(a[1], b[1]) })
	first := make([]int, states+1) // of the steps to a state
	for _, s := range steps {
		first[s[1]+1]++
	}
	for i := range states {
		first[i+1] += first[i]
	}
	good := make([]bool, states)
	for todo := ends; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if good[i] {
			continue
		}
		good[i] = true
		for _, s := range steps[first[i]:first[i+1]] {
			todo = append(todo, s[0])
		}
	}
	return slices.Index(good, false)
}

// eachParty calls f with every choice of n tasks.
func eachParty(n int, f func(tasks []conduct)) {
	const kinds = int(exiting) + 1
	choices := 1
	for range n {
		choices *= kinds
	}
	for c := range choices {
		tasks := make([]conduct, n)
		for i := range tasks {
			tasks[i] = conduct(c % kinds)
			c /= kinds
		}
		f(tasks)
	}
}

// Two tasks meet everything that can happen between a task and the next one. MYRIAD_MODEL_TASKS=3
// has eleven million states and takes a quarter of a minute.
func TestHandoffModel(t *testing.T) {
	n := 2
	if os.Getenv("MYRIAD_MODEL_TASKS") == "3" {
		n = 3
	}
	total := 0
	eachParty(n, func(tasks []conduct) {
		m := model{tasks: tasks}
		states, err := m.explore()
		if err != nil {
			t.Fatalf("tasks %v: %v", tasks, err)
		}
		total += states
	})
	t.Logf("%d states", total)
}

// Every mutant must be caught, or the model would prove nothing.
func TestHandoffModelMutants(t *testing.T) {
	for mistake := leavesByStore; mistake <= exitsWithTheLoop; mistake++ {
		caught := error(nil)
		eachParty(2, func(tasks []conduct) {
			if m := (model{tasks, mistake}); caught == nil {
				_, caught = m.explore()
			}
		})
		if caught == nil {
			t.Errorf("mistake %d is not noticed", mistake)
		} else {
			t.Logf("mistake %d: %.60s", mistake, caught.Error())
		}
	}
}
