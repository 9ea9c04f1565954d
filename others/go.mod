module github.com/myriad-go/myriad/others

go 1.26.0

require github.com/myriad-go/myriad v0.0.0

require (
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/myriad-go/myriad => ../
