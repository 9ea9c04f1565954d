//go:build !linux

// Command nghttpd needs Linux.
package main

func main() { panic("this program needs Linux") }
