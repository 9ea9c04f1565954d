module github.com/myriad-go/myriad/bench

go 1.26.0

require github.com/myriad-go/myriad v0.0.0

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/myriad-go/myriad => ../
