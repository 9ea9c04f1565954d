package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/bench/attack"
)

// Attackers have the lowest priority with all of their threads: they stand for machines that do not
// share processors with their victim.
func TestAttackersGiveWay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	attackers, err := start(t.Context(), "the attackers", self, attackCommand)
	if err != nil {
		t.Fatal(err)
	}
	defer attackers.end()
	if err := attackers.send(attack.Spec{Addr: ln.Addr().String(), Kind: attack.Garbage}); err != nil {
		t.Fatal(err)
	}
	if line, err := attackers.line(); line != "attacking" {
		t.Fatal(line, err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", attackers.pid()))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		if nice := strings.Fields(fields)[16]; nice != "19" { // proc_pid_stat(5), field 19
			t.Errorf("a thread of the attackers has the priority %s", nice)
		}
	}
}
