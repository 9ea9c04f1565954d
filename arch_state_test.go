package myriad_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// mayChangePhase are the functions that may: the one that advances it, and the one that uses a Conn
// for another connection.
var mayChangePhase = []string{"advance", "connOf"}

// One function advances the phase of a conn.
func TestOneFunctionAdvancesAConn(t *testing.T) {
	changes := 0
	for _, s := range sources(t) {
		if strings.Contains(s.name, "/") || s.test() {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				a, ok := n.(*ast.AssignStmt)
				if !ok || a.Tok != token.ASSIGN {
					return true
				}
				for _, to := range a.Lhs {
					if field, ok := to.(*ast.SelectorExpr); ok && field.Sel.Name == "status" {
						if changes++; !slices.Contains(mayChangePhase, f.Name.Name) {
							t.Errorf("%s sets Conn.status: phases change by Loop.advance", f.Name.Name)
						}
					}
				}
				return true
			})
		}
	}
	if changes != len(mayChangePhase) {
		t.Errorf("Conn.status is set in %d places, want %d", changes, len(mayChangePhase))
	}
}
