//go:build !linux

// Command goredis needs Linux.
package main

func main() { panic("this program needs Linux") }
