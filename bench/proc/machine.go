package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Busy is the time that all processors of the machine together have worked so far, interrupts
// included, in ticks of 10 ms. It includes time in which the host ran other machines while this one
// was ready ("steal"), because that time is lost as well.
func Busy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(stat)
}

// parseBusy reads the first line of proc_stat(5): user nice system idle iowait irq softirq steal,
// and guest times, which are in user and nice already.
func parseBusy(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("/proc/stat does not begin with the times of all processors: %q", line)
	}
	var busy int64
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, iowait
			busy += n
		}
	}
	return time.Duration(busy) * tick, nil
}
