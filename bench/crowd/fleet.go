package crowd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A Fleet is processes of clients that obey together.
type Fleet struct {
	processes []*process
	began     time.Time
}

// A process is one of a fleet.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	ended   chan struct{} // closed when it says nothing more

	mu   sync.Mutex
	now  Report // what it has said last; what is counted in it is since the last look
	cpu  time.Duration
	last time.Time // when it has said that
	err  error
}

// Start starts a process for each spec. command is a program that calls Main.
func Start(command []string, specs []Spec) (*Fleet, error) {
	f := &Fleet{began: time.Now()}
	for _, s := range specs {
		p, err := startProcess(command, s)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("starting clients: %w", err)
		}
		f.processes = append(f.processes, p)
	}
	return f, nil
}

func startProcess(command []string, s Spec) (*process, error) {
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{command: c, in: in, orders: json.NewEncoder(in), ended: make(chan struct{})}
	go p.listen(out)
	return p, p.orders.Encode(s)
}

// listen takes in what a process says, until it ends.
func (p *process) listen(out io.Reader) {
	defer close(p.ended)
	answers := json.NewDecoder(bufio.NewReader(out))
	for {
		var s Report
		if err := answers.Decode(&s); err != nil {
			p.fail(fmt.Errorf("a process of clients has ended: %w", err))
			return
		}
		p.mu.Lock()
		counted := p.now
		p.now = s
		p.now.happened(counted)
		p.last = time.Now()
		p.mu.Unlock()
		if s.Err != "" {
			p.fail(errors.New(s.Err))
		}
	}
}

// fail notes the first reason why a process has ended.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Order gives each process its share of an order.
func (f *Fleet) Order(o Order) error {
	for i, p := range f.processes {
		if err := p.orders.Encode(o.share(i, len(f.processes))); err != nil {
			return fmt.Errorf("clients do not listen: %w", err)
		}
	}
	return nil
}

// Look is what has happened in all processes since the last look. Its CPU is that of the busiest.
// It fails if a process has ended.
func (f *Fleet) Look() (all Report, err error) {
	for _, p := range f.processes {
		p.mu.Lock()
		one := p.now
		p.now = Report{Held: one.Held, Opening: one.Opening, Silent: one.Silent, CPU: one.CPU}
		one.CPU, p.cpu = one.CPU-p.cpu, one.CPU
		err = errors.Join(err, p.err)
		p.mu.Unlock()
		all.add(one)
	}
	return all, err
}

// Close ends all processes.
func (f *Fleet) Close() {
	for _, p := range f.processes {
		_ = p.in.Close()
	}
	for _, p := range f.processes {
		patience := time.AfterFunc(10*time.Second, func() { _ = p.command.Process.Kill() })
		<-p.ended
		_ = p.command.Wait() // it has said why it has ended
		patience.Stop()
	}
}
