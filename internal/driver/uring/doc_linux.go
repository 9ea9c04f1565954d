// Package uring is a Linux driver by io_uring: one ring for each loop, which needs Linux 6.1 or
// later. A loop's thread enters the kernel once for all that its connections send and receive
// between two rounds.
package uring
