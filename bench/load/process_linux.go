package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/myriad-go/myriad/bench/proc"
)

// Main is a driver process.
func Main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load driver:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	if _, err := proc.RaiseFiles(); err != nil {
		return err
	}
	orders, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var spec Spec
	if err := orders.Decode(&spec); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	d, ready := openMeasured(spec)
	if d != nil {
		defer d.close()
	}
	if err := answers.Encode(ready); err != nil {
		return err
	}
	for {
		var o Order
		switch err := orders.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("order: %w", err)
		}
		if err := answers.Encode(d.obey(o)); err != nil {
			return err
		}
	}
}

// used is what the server has used so far.
func (s *Spec) used() (proc.Times, error) {
	if s.Family {
		return proc.FamilyCPU(s.Server)
	}
	return proc.CPU(s.Server)
}

// openMeasured opens the connections, and finds out what that costs.
func openMeasured(spec Spec) (*driver, Ready) {
	began := time.Now()
	server, err1 := spec.used()
	self, err2 := proc.CPU(os.Getpid())
	d, err := open(spec)
	elapsed := time.Since(began)
	serverNow, err3 := spec.used()
	selfNow, err4 := proc.CPU(os.Getpid())
	if err = errors.Join(err, err1, err2, err3, err4); err != nil {
		return d, Ready{Err: err.Error()}
	}
	return d, Ready{Elapsed: elapsed, Server: serverNow.Sub(server), Driver: selfNow.Sub(self).Total}
}

func (d *driver) obey(o Order) Result {
	w, err := newWindow(d.spec.used, o)
	if err != nil {
		return Result{Err: err.Error()}
	}
	d.window, d.counted = w, nil
	switch o.Mode {
	case Closed:
		err = d.runClosed()
	case Open:
		err = d.runOpen(o.Rate, o.Slow)
	case Broadcast:
		err = d.runBroadcast()
	case Exchange:
		err = d.runExchange()
	case Publish:
		err = d.runPublish()
	default:
		err = fmt.Errorf("there is no mode %q", o.Mode)
	}
	if err != nil {
		return Result{Err: err.Error()}
	}
	return w.result()
}
