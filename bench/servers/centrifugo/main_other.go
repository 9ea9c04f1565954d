//go:build !linux

// Command centrifugo needs Linux.
package main

func main() { panic("this program needs Linux") }
