//go:build !linux

// Command respclient needs Linux.
package main

func main() { panic("this program needs Linux") }
