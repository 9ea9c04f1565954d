module github.com/myriad-go/myriad/tools

go 1.26.0

require github.com/myriad-go/myriad v0.0.0

replace github.com/myriad-go/myriad => ../
