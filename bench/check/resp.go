package check

import (
	"bytes"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// respSet is what redis-benchmark -t set sends.
const respSet = "*3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nxxx\r\n"

// RESP is for servers that know SET of the Redis protocol. So many commands come at once.
func RESP(pipelined int) Check {
	return func(addr string) (load.Talk, error) {
		if err := checkStore(addr); err != nil {
			return load.Talk{}, err
		}
		request := bytes.Repeat([]byte(respSet), pipelined)
		reply := bytes.Repeat([]byte("+OK\r\n"), pipelined)
		c, err := dial(addr)
		if err != nil {
			return load.Talk{}, err
		}
		defer c.Close()
		for range 2 {
			if err := expect(c, request, reply); err != nil {
				return load.Talk{}, fmt.Errorf("SET: %w", err)
			}
		}
		return load.Talk{Request: request, Requests: pipelined, Reply: whole([]byte("+OK\r\n"))}, quiet(c)
	}
}

// RESPSlow is RESP(1) for the quick commands, and SLEEP for the slow ones.
func RESPSlow(addr string) (load.Talk, error) {
	t, err := RESP(1)(addr)
	if err != nil {
		return t, err
	}
	c, err := dial(addr)
	if err != nil {
		return t, err
	}
	defer c.Close()
	t.Slow = []byte("*1\r\n$5\r\nSLEEP\r\n")
	began := time.Now()
	if err := expect(c, t.Slow, []byte("+OK\r\n")); err != nil {
		return t, fmt.Errorf("SLEEP: %w", err)
	}
	if took := time.Since(began); took < harness.Delay {
		return t, fmt.Errorf("a slow answer took %v, not at least %v", took, harness.Delay)
	}
	return t, nil
}

// Commands is for clients: all commands get their own replies, which the program checks.
func Commands(ask func(harness.Order) (harness.Report, error), _ bool) error {
	o := harness.Order{Times: 1000, Producers: 8, Watch: true}
	r, err := ask(o)
	if err == nil && r.Done != o.Times {
		err = fmt.Errorf("%d of %d commands were answered", r.Done, o.Times)
	}
	return err
}

// checkStore makes sure that what is set is kept.
func checkStore(addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, x := range [][2]string{
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nfirst\r\n", "+OK\r\n"}, {"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
			"$5\r\nfirst\r\n"},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nno\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "+OK\r\n$2\r\nno\r\n"},
	} {
		if err := expect(c, []byte(x[0]), []byte(x[1])); err != nil {
			return fmt.Errorf("%q: %w", x[0], err)
		}
	}
	return nil
}
