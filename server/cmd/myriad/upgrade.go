package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/handover"
)

// This file upgrades the server while its clients stay connected. At SIGUSR2, or asked by myriad
// upgrade, the process starts its own program again, which the operator has replaced by a newer
// one. Or a newer server finds this one by --handover. Either way this one hands its listeners,
// connections and state over to the new process.

// program returns what of the server moves. The names are the same in all versions.
func (r *running) program() (*handover.Program, error) {
	p := &handover.Program{Engine: r.engine}
	for i, h := range r.servers {
		if err := r.pusher.AddTo(p, h, [...]string{"public", "admin"}[i]); err != nil {
			return nil, err
		}
	}
	t, err := r.door.Thawer()
	if err != nil {
		return nil, err
	}
	p.Servers["redis"] = t
	return p, nil
}

// An outcome is what an upgrade has done.
type outcome struct {
	From  int           `json:"from"`     // pid of the old process
	To    int           `json:"to"`       // pid of the new one; 0: it cannot be seen from the old one
	Moved int           `json:"moved"`    // connections
	Left  int           `json:"left"`     // connections, also those of servers that do not move
	Pause time.Duration `json:"pause_ns"` // of those that have moved
}

// An upgrader hands a server over to another process: to one that it starts, or to one that has
// found this one by --handover. One attempt runs at a time, and none after one that has succeeded.
type upgrader struct {
	*running
	ctx     context.Context // of run: ends when the server is told to shut down, or ends
	told    context.Context // ends when the server is told to shut down
	manager *notifier
	socket  *handoverSocket // nil: there is none

	// These are set when moved is closed: another process goes on.
	moved  chan struct{}
	byPath bool // it has found this one by --handover
	given  *handover.Given
	passOn func() // tells the new process to shut down, too; nil: it is not this one's child
	// stopPassing is called before the process ends, because told ends with it.
	stopPassing func() bool
	ended       chan error    // how the new process has ended; nil: it is not this one's child
	outcome     outcome       // final when settled is closed
	settled     chan struct{} // what was not at rest has followed, or ends here

	mu    sync.Mutex
	phase upgradePhase
	idle  sync.Cond // phase is not underWay
}

type upgradePhase uint8

const (
	mayBegin upgradePhase = iota
	underWay
	hasMoved
	shutsDown
)

// Reasons why an attempt cannot begin.
var (
	errUnderWay  = errors.New("another upgrade is under way")
	errHasMoved  = errors.New("another process has taken over from this one")
	errShutsDown = errors.New("the server shuts down")
)

func newUpgrader(ctx, told context.Context, r *running, manager *notifier, socket *handoverSocket) *upgrader {
	u := &upgrader{running: r, ctx: ctx, told: told, manager: manager, socket: socket, moved: make(chan struct{}),
		settled: make(chan struct{})}
	u.idle.L = &u.mu
	return u
}

// begin begins an attempt, for which it returns what moves. It is followed by end unless it fails.
func (u *upgrader) begin() (*handover.Program, error) {
	u.mu.Lock()
	phase := u.phase
	if phase == mayBegin {
		u.phase = underWay
	}
	u.mu.Unlock()
	if phase != mayBegin {
		return nil, [...]error{underWay: errUnderWay, hasMoved: errHasMoved, shutsDown: errShutsDown}[phase]
	}
	p, err := u.program()
	if err == nil {
		return p, nil
	}
	u.end(mayBegin)
	return nil, err
}

// end ends an attempt: next is hasMoved or mayBegin.
func (u *upgrader) end(next upgradePhase) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.phase = next
	u.idle.Broadcast()
	if next == hasMoved {
		close(u.moved)
	}
}

// stop waits for the attempt that runs, and lets no other one begin.
func (u *upgrader) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.phase == underWay {
		u.idle.Wait()
	}
	if u.phase == mayBegin {
		u.phase = shutsDown
	}
}

// start hands over to a new process of the program's own path, where a newer binary may be by now.
// If the server is told to shut down meanwhile, so is the new process, because an operator may know
// only the old one's pid. The log names what has asked.
func (u *upgrader) start(asked string) error {
	p, err := u.begin()
	if err == nil {
		if err = u.startProcess(p); err == nil {
			u.end(hasMoved)
			return nil
		}
		u.end(mayBegin)
	}
	u.log.Error("myriad: "+asked+": no new process took over, and this one goes on", "error", oneLine(err))
	return err
}

func (u *upgrader) startProcess(p *handover.Program) error {
	if os.Getpid() == 1 {
		return errors.New("this is process 1, with whose end the container ends: let myriad init serve be " +
			"process 1, or start the new server beside this one with --handover")
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	keepDescriptors()
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, u.recipient.successorEnviron(os.Environ())
	nc, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	if err = awaitStart(u.told, nc); err == nil {
		err = u.give(nc, p, cmd.Process.Pid)
	}
	if err != nil {
		return errors.Join(err, endOf(cmd))
	}
	if err := u.manager.handOver(cmd.Process.Pid); err != nil {
		u.log.Error("myriad: the service manager was not told of the new process", "pid", cmd.Process.Pid, "error", err)
	}
	u.ended = make(chan error, 1)
	go func() { u.ended <- cmd.Wait() }()
	u.passOn = sync.OnceFunc(func() { u.tellToEnd(cmd.Process) })
	u.stopPassing = context.AfterFunc(u.told, u.passOn)
	time.AfterFunc(passOnWithin, func() { u.stopPassing() })
	return nil
}

// passOnWithin is how long after the move a signal to shut down is still passed on. The new process
// expects it to come twice for doubledWithin, which is longer.
const passOnWithin = doubledWithin / 2

// tellToEnd has the new process shut down, too: the signal has come while everything moved.
func (u *upgrader) tellToEnd(p *os.Process) {
	u.log.Info("myriad: passing on the signal to shut down", "pid", p.Pid)
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		u.log.Error("myriad: the new process was not told to shut down", "pid", p.Pid, "error", err)
	}
}

// startWait is how long a new process may take until it asks for everything.
const startWait = 30 * time.Second

// awaitStart returns when the new process is ready to take over. Until then nothing is prepared for
// the move: clients that come meanwhile move with the others. It fails when told ends: no client
// waits for a new process that is to end at once. If it fails, it closes nc.
func awaitStart(told context.Context, nc *net.UnixConn) error {
	err := nc.SetReadDeadline(time.Now().Add(startWait))
	goesOn := context.AfterFunc(told, func() { _ = nc.SetReadDeadline(time.Now()) })
	var request string
	if err == nil {
		request, err = readLine(nc, maxRequest)
	}
	switch {
	case !goesOn():
		err = errShutsDown
	case err != nil:
		err = fmt.Errorf("the new process does not ask to take over: %w", err)
	case request != takeRequest:
		err = fmt.Errorf("the new process says %q", request)
	default:
		return nil
	}
	return errors.Join(err, nc.Close())
}

// hand hands over to a process that has found this one by --handover.
func (u *upgrader) hand(nc *net.UnixConn) {
	pid := peerPid(nc)
	p, err := u.begin()
	if err != nil {
		u.log.Warn("myriad: --handover: refused to hand over", "pid", pid, "reason", oneLine(err))
		_ = answer{Refused: err.Error()}.write(nc, nil)
		_ = nc.Close()
		return
	}
	if err := u.give(nc, p, pid); err != nil {
		u.log.Error("myriad: --handover: no new process took over, and this one goes on", "pid", pid, "error",
			oneLine(err))
		u.end(mayBegin)
		return
	}
	u.byPath = true
	u.end(hasMoved)
}

// give hands everything over to the process at the other end of nc, which it closes in the end. If
// it fails, everything goes on here.
func (u *upgrader) give(nc *net.UnixConn, p *handover.Program, pid int) error {
	if err := u.clusterNode.prepareMove(u.ctx); err != nil { // it takes its time, for which the new process waits
		_ = answer{Refused: err.Error()}.write(nc, nil) // the new process says why, too
		return errors.Join(err, nc.Close())
	}
	file, path, err := u.socket.file()
	if err == nil {
		err = answer{Go: true, Path: path}.write(nc, file)
		if file != nil {
			_ = file.Close()
		}
	}
	if err != nil {
		u.clusterNode.cancelMove()
		return errors.Join(fmt.Errorf("the new process did not wait: %w", err), nc.Close())
	}
	u.pusher.PrepareMove(true)
	given, err := handover.Give(nc, p)
	if err != nil {
		u.pusher.PrepareMove(false)
		u.clusterNode.cancelMove()
		return err
	}
	u.socket.leave()
	u.given = given
	u.outcome = outcome{From: os.Getpid(), To: pid, Moved: given.Moved, Left: u.engine.Stats().Conns,
		Pause: given.Pause}
	u.log.Info("myriad: a new process goes on", "pid", pid, "connections", given.Moved, "left", u.outcome.Left, "pause",
		given.Pause.Round(10*time.Microsecond).String())
	return nil
}

// settle has connections follow that were not at rest, for the time of --handover-wait. It is a
// part of the shutdown, and does nothing if no other process goes on.
func (u *upgrader) settle(ctx context.Context) {
	if u == nil || u.given == nil {
		return
	}
	defer close(u.settled)
	ctx, cancel := context.WithTimeout(ctx, u.handoverWait)
	defer cancel()
	defer context.AfterFunc(u.told, cancel)()
	all, err := u.given.MoveRest(ctx)
	followed := all.Moved - u.outcome.Moved
	u.outcome.Moved, u.outcome.Left = all.Moved, max(0, u.outcome.Left-followed)
	if err != nil {
		u.log.Warn("myriad: further connections cannot follow, and end here", "error", oneLine(err))
	}
	if followed > 0 {
		u.log.Info("myriad: connections that came to rest have followed", "connections", followed, "left",
			u.outcome.Left)
	}
}

// endPatience is how long a new process that has failed may take to say why, and to end.
const endPatience = 2 * time.Second

// endOf waits for a child that has not taken over, and kills it if it does not end by itself. It
// returns how the child has ended if that may be the reason.
func endOf(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("the new process has ended: %w", err)
		}
		return errors.New("the new process has ended")
	case <-time.After(endPatience):
	}
	_ = cmd.Process.Kill() // it may have ended by now
	<-ended
	return errors.New("the new process did not end by itself, and was killed")
}

// take receives everything from the predecessor; nil: there is none. Nothing of it runs until GoOn.
func (r *running) take(certificates *keeper) (*handover.Taken, error) {
	from := r.predecessor
	if from == nil {
		return nil, nil
	}
	for i, a := range r.list() {
		if certificates != nil && !a.isUnix() {
			r.servers[i].TLSConfig = certificates.config()
		}
	}
	p, err := r.program()
	if err == nil {
		err = r.enter()
	}
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	taken, err := handover.Take(from, p)
	if err != nil {
		return nil, fmt.Errorf("taking the place of another process: %w", err)
	}
	return taken, nil
}

// follow serves requests for an upgrade, by a signal or by --handover, until the server ends.
func (u *upgrader) follow(signals <-chan os.Signal) {
	go func() {
		for {
			select {
			case <-u.ctx.Done():
				return
			case <-signals:
				go func() { _ = u.start("SIGUSR2") }() // it has logged the error
			}
		}
	}()
	if u.socket != nil {
		go u.socket.serve(u.hand, u.startFor)
	}
}

// startFor is start for myriad upgrade.
func (u *upgrader) startFor(nc *net.UnixConn) {
	defer nc.Close()
	a := answer{Outcome: &u.outcome}
	if err := u.start("myriad upgrade"); err != nil {
		a = answer{Refused: err.Error()}
	} else {
		<-u.settled
	}
	if err := a.write(nc, nil); err != nil {
		u.log.Warn("myriad: myriad upgrade did not wait for the answer", "error", err)
	}
}

// finish waits until all requests for an upgrade are answered. It is called at the end of the
// shutdown. It fails if the new process has failed by then: the parent of this one can learn of
// that only from this one's status.
func (u *upgrader) finish() error {
	u.socket.wait()
	if u.stopPassing != nil {
		u.stopPassing()
	}
	select {
	case err := <-u.ended:
		if err != nil {
			return fmt.Errorf("process %d, which had taken over, has ended: %w: its log says why", u.outcome.To, err)
		}
	default:
	}
	return nil
}

// stay waits for the signal to end if another process has found this one by --handover, and
// --handover-stay is set.
func (u *upgrader) stay() {
	if !u.byPath || !u.handoverStay {
		return
	}
	debug.FreeOSMemory()
	u.log.Info("myriad: another process serves; this one waits for the signal to end (--handover-stay)")
	<-u.told.Done()
}
