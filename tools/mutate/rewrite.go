package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A site is a place where one mistake can be switched on.
type site struct {
	file string
	line int
	what string
}

// A rewriter adds the mistakes of one file to its text. Each is behind a call of mutant with the
// number of its site, so that one binary has them all.
type rewriter struct {
	name    string
	src     string
	fset    *token.FileSet
	sites   *[]site           // of all files; the number of a site is its index plus one
	broken  map[int]bool      // sites whose mistake does not compile: they are left alone
	listed  map[ast.Node]bool // statements of a list, which may become another statement
	asked   map[ast.Node]bool // conditions
	ignored map[ast.Node]bool // declarations of constants, which must stay constant
}

// rewrite returns src with all mistakes that can be made in it, and the name of its package.
func rewrite(name, src string, sites *[]site, broken map[int]bool) (text, pack string, err error) {
	r := &rewriter{name: name, src: src, fset: token.NewFileSet(), sites: sites, broken: broken,
		listed: map[ast.Node]bool{}, asked: map[ast.Node]bool{}, ignored: map[ast.Node]bool{}}
	file, err := parser.ParseFile(r.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	ast.Inspect(file, func(n ast.Node) bool { r.note(n); return true })
	body := r.inside(file)
	return src[:r.offset(file.Pos())] + body + src[r.offset(file.End()):], file.Name.Name, nil
}

// note remembers what a node says about its children.
func (r *rewriter) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		r.list(n.List)
	case *ast.CaseClause:
		r.list(n.Body)
	case *ast.CommClause:
		r.list(n.Body)
	case *ast.IfStmt:
		r.asked[n.Cond] = true
	case *ast.SwitchStmt:
		for _, s := range n.Body.List {
			for _, e := range s.(*ast.CaseClause).List {
				r.asked[e] = n.Tag == nil
			}
		}
	case *ast.GenDecl:
		r.ignored[n] = n.Tok == token.CONST || n.Tok == token.TYPE
	}
}

func (r *rewriter) list(all []ast.Stmt) {
	for _, s := range all {
		r.listed[s] = true
	}
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

func (r *rewriter) plain(n ast.Node) string { return r.src[r.offset(n.Pos()):r.offset(n.End())] }

// inside is the text of n with what is changed below it.
func (r *rewriter) inside(n ast.Node) string {
	type change struct {
		from, to int
		text     string
	}
	var all []change
	ast.Inspect(n, func(m ast.Node) bool {
		if m == nil || m == n {
			return true
		}
		if r.ignored[m] {
			return false
		}
		text, changed := r.change(m)
		if changed {
			all = append(all, change{r.offset(m.Pos()), r.offset(m.End()), text})
		}
		return !changed
	})
	slices.SortFunc(all, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	at := r.offset(n.Pos())
	for _, c := range all {
		b.WriteString(r.src[at:c.from] + c.text)
		at = c.to
	}
	return b.String() + r.src[at:r.offset(n.End())]
}

// site numbers a mistake, and returns 0 if it does not compile.
func (r *rewriter) site(n ast.Node, at token.Pos, what string) int {
	*r.sites = append(*r.sites, site{r.name, r.fset.Position(at).Line, what})
	if number := len(*r.sites); !r.broken[number] {
		return number
	}
	return 0
}

// change returns what stands for n, if a mistake can be made there.
func (r *rewriter) change(n ast.Node) (text string, changed bool) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return r.binary(n)
	case *ast.ReturnStmt:
		return r.returned(n)
	case *ast.IncDecStmt:
		if r.listed[n] {
			op := map[token.Token]token.Token{token.INC: token.DEC, token.DEC: token.INC}[n.Tok]
			return r.otherwise(n, fmt.Sprintf("%s for %s", op, n.Tok), r.plain(n.X)+op.String())
		}
	case *ast.AssignStmt:
		if r.listed[n] && n.Tok != token.DEFINE {
			return r.otherwise(n, "left out: "+firstLine(r.plain(n)), "")
		}
	case *ast.ExprStmt:
		if r.listed[n] && removable(n.X) {
			return r.otherwise(n, "left out: "+firstLine(r.plain(n)), "")
		}
	case *ast.DeferStmt:
		if removable(n.Call) {
			return r.otherwise(n, "left out: "+firstLine(r.plain(n)), "")
		}
	}
	if r.asked[n] {
		return r.condition(n.(ast.Expr))
	}
	return "", false
}

// removable reports whether n is a call without which the program may go on: of a lock that is not
// released nothing is learned.
func removable(n ast.Expr) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name != "panic"
	case *ast.SelectorExpr:
		return !slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, f.Sel.Name)
	}
	return true
}

func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if more {
		line += " …"
	}
	return line
}

// otherwise puts instead in the place of a statement; empty: it is left out.
func (r *rewriter) otherwise(n ast.Stmt, what, instead string) (string, bool) {
	number := r.site(n, n.Pos(), what)
	if number == 0 {
		return "", false
	}
	return fmt.Sprintf("if mutant(%d) { %s } else { %s }", number, instead, r.inside(n)), true
}

// condition turns one around that is neither a comparison nor made of others.
func (r *rewriter) condition(n ast.Expr) (string, bool) {
	number := r.site(n, n.Pos(), "not "+firstLine(r.plain(n)))
	if number == 0 {
		return "", false
	}
	return fmt.Sprintf("(%s) != mutant(%d)", r.inside(n), number), true
}

// returned turns around the constants that are returned.
func (r *rewriter) returned(n *ast.ReturnStmt) (string, bool) {
	if !slices.ContainsFunc(n.Results, constant) {
		return "", false
	}
	var all []string
	for _, e := range n.Results {
		text := r.rendered(e)
		if constant(e) {
			if number := r.site(n, n.Pos(), "return not "+text); number != 0 {
				text = fmt.Sprintf("%s != mutant(%d)", text, number)
			}
		}
		all = append(all, text)
	}
	return "return " + strings.Join(all, ", "), true
}

func constant(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false")
}

// rendered is the text of n with what is changed in it.
func (r *rewriter) rendered(n ast.Node) string {
	if text, changed := r.change(n); changed {
		return text
	}
	return r.inside(n)
}

// others are the operators that are mistaken for one.
var others = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
}

// arithmetic names the functions that stand for operators on numbers.
var arithmetic = map[token.Token]string{
	token.ADD: "mutantPlus", token.SUB: "mutantMinus", token.MUL: "mutantTimes", token.QUO: "mutantOver",
}

func (r *rewriter) binary(n *ast.BinaryExpr) (string, bool) {
	var cases strings.Builder
	for _, op := range others[n.Op] {
		if number := r.site(n, n.OpPos, fmt.Sprintf("%s for %s", op, n.Op)); number != 0 {
			fmt.Fprintf(&cases, "if mutant(%d) { return %s %s %s }; ", number, r.plain(n.X), op, r.plain(n.Y))
		}
	}
	number := 0
	if f := arithmetic[n.Op]; f != "" {
		if number = r.site(n, n.OpPos, n.Op.String()+" turned around"); number == 0 {
			return "", false
		}
	} else if cases.Len() == 0 {
		return "", false
	}
	x, y := r.rendered(n.X), r.rendered(n.Y)
	if number != 0 {
		return fmt.Sprintf("%s(%d, %s, %s)", arithmetic[n.Op], number, x, y), true
	}
	return fmt.Sprintf("func() bool { %sreturn %s %s %s }()", cases.String(), x, n.Op, y), true
}

// switches is the file that is added to the package: it switches one mistake on, and writes down
// which places are reached. It is a file of the package, so its names are long.
const switches = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantOn, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantReach = os.Getenv("MUTANT_REACH")
	mutantSeen  [%d + 1]atomic.Bool
)

func mutant(n int) bool {
	if mutantReach != "" && !mutantSeen[n].Swap(true) {
		f, err := os.OpenFile(mutantReach, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			mutantSeen[n].Store(false) // a test may use up all descriptors for a while
			return false
		}
		fmt.Fprintln(f, n)
		f.Close()
	}
	return n == mutantOn
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float64
}

func mutantPlus[T mutantNumber](n int, x, y T) T {
	if mutant(n) {
		return x - y
	}
	return x + y
}

func mutantMinus[T mutantNumber](n int, x, y T) T {
	if mutant(n) {
		return x + y
	}
	return x - y
}

func mutantTimes[T mutantNumber](n int, x, y T) T {
	if mutant(n) {
		return x / y
	}
	return x * y
}

func mutantOver[T mutantNumber](n int, x, y T) T {
	if mutant(n) {
		return x * y
	}
	return x / y
}
`
