package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/handover"
)

// signals are those that a server acts upon while it runs. They are caught from before any program
// learns that the server is ready until the process ends, because else they would end it.
type signals struct {
	hangups  chan os.Signal // SIGHUP asks a daemon to read its files again
	upgrades chan os.Signal // SIGUSR2 asks for a new process in the place of this one
	doubled  chan os.Signal // see catchSignals
}

// catchSignals begins to catch signals. A process that takes the place of another one may get the
// signal to shut down twice: a service manager sends it to both processes, and the old one passes
// it on. The second signal must not end the new process at once, as it does otherwise.
func catchSignals(successor bool) *signals {
	s := &signals{make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)}
	signal.Notify(s.hangups, syscall.SIGHUP)
	handover.Notify(s.upgrades)
	if successor {
		signal.Notify(s.doubled, os.Interrupt, syscall.SIGTERM)
	}
	return s
}

// doubledWithin is how long after the end of the old process's part its signal may come.
const doubledWithin = time.Second

// tookOver is called when the new process goes on: soon a second signal ends it at once.
func (s *signals) tookOver() { time.AfterFunc(doubledWithin, func() { signal.Stop(s.doubled) }) }

// stop catches no more signals.
func (s *signals) stop() {
	for _, c := range []chan os.Signal{s.hangups, s.upgrades, s.doubled} {
		signal.Stop(c)
	}
}
