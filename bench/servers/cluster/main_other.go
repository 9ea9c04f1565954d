//go:build !linux

// Command cluster needs Linux.
package main

func main() { panic("this program needs Linux") }
