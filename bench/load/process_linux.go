package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

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
	d, err := open(spec)
	if d != nil {
		defer d.close()
	}
	if err := answers.Encode(Ready{text(err)}); err != nil {
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

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (d *driver) obey(o Order) Result {
	w, err := newWindow(d.spec.Server, o)
	if err != nil {
		return Result{Err: err.Error()}
	}
	d.window = w
	switch o.Mode {
	case Closed:
		err = d.runClosed()
	case Open:
		err = d.runOpen(o.Rate)
	case Broadcast:
		err = d.runBroadcast()
	case Exchange:
		err = d.runExchange()
	default:
		err = fmt.Errorf("there is no mode %q", o.Mode)
	}
	if err != nil {
		return Result{Err: err.Error()}
	}
	return w.result()
}
