package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// elsewhere are folders whose contents are not written by the project.
var elsewhere = []string{".git", "node_modules", "dist", "bin", "test-results", "playwright-report"}

// texts are the extensions of files that the project writes. A file without an extension is read if
// it is in scripts or .ci.
var texts = []string{".go", ".ts", ".tsx", ".mjs", ".js", ".svelte", ".css", ".html", ".json",
	".yaml", ".toml", ".proto", ".py", ".md", ".mod", ".sum", ".sh", ".npmrc"}

// TestHouse checks the repository against the rules.
func TestHouse(t *testing.T) {
	t.Parallel()
	files := read(t, "..")
	seen := map[string]bool{}
	for _, f := range files {
		if r, ok := roomOf(filepath.ToSlash(filepath.Dir(f.path))); ok {
			seen[r.folder] = true
		}
	}
	for _, want := range []string{"digraph", "order", "allconcur", "rdmanet/p2p", "ledger/store",
		"node/driver", "cmd/ledgerd"} {
		if !seen[want] {
			t.Errorf("room %s was not found: the test does not read what it should", want)
		}
	}
	for _, broken := range check(files) {
		t.Error(broken)
	}
}

// read returns the files of the repository at root.
func read(t *testing.T, root string) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(elsewhere, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		script := strings.HasPrefix(relative, "scripts/") || strings.HasPrefix(relative, ".ci/")
		if !entry.Type().IsRegular() || !script && !slices.Contains(texts, filepath.Ext(name)) {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, file{path: relative, content: content})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCheckCatches plants one violation of each rule.
func TestCheckCatches(t *testing.T) {
	t.Parallel()
	const story = "// Package %s is a room.\npackage %s\n"
	source := func(name, body string) []byte {
		return []byte(strings.ReplaceAll(story, "%s", name) + body)
	}
	tests := []struct {
		name    string
		path    string
		content []byte
		want    string // part of the one violation; "" for none
	}{
		{"nothing wrong", "allconcur/a.go", source("allconcur",
			"import \""+module+"/order\"\n\nvar _ order.Round\n"), ""},
		{"a long line", "allconcur/a.go", source("allconcur", "\nvar _ = \""+
			strings.Repeat("x", 91)+"\"\n"), "a.go:4: 101 columns, at most 100"},
		{"a line that fits", "allconcur/a.go", source("allconcur", "\nvar _ = \""+
			strings.Repeat("x", 90)+"\"\n"), ""},
		{"a long line with tabs", "allconcur/a_test.go", source("allconcur",
			"\nfunc f() {\n\t\t// "+strings.Repeat("x", 90)+"\n}\n"), "a_test.go:5: 101 columns"},
		{"a long line of a raw string", "allconcur/a.go", source("allconcur", "\nvar _ = `\n"+
			strings.Repeat("x", 200)+"`\n"), ""},
		{"a long line of code in a comment", "allconcur/a.go", source("allconcur",
			"\n//\t"+strings.Repeat("x", 200)+"\n"), ""},
		{"an unclear actor", "allconcur/a.go", source("allconcur", "\n// Who"+"ever asks waits.\n"),
			"a.go:4: \"Who" + "ever\": name the actor"},
		{"an unclear actor in code", "allconcur/a.go", source("allconcur", "\nvar _ = \"who"+
			"ever\"\n"), ""},
		{"a report in other words", "allconcur/a_test.go", source("allconcur",
			"\n// f tells "+"whether it is.\n"), "reports whether"},
		{"engine knows the ledger", "allconcur/a.go", source("allconcur",
			"import _ \""+module+"/ledger\"\n"), "a.go:3: allconcur may not import ledger"},
		{"ledger knows an engine", "ledger/a.go", source("ledger",
			"import _ \""+module+"/allconcur\"\n"), "ledger may not import allconcur"},
		{"import up", "digraph/a.go", source("digraph", "import _ \""+module+"/node\"\n"),
			"digraph may not import node"},
		{"inner room without a right", "ledger/a.go",
			source("ledger", "import _ \""+module+"/ledger/store\"\n"),
			"ledger may not import ledger/store"},
		{"values know what executes them", "ledger/a.go",
			source("ledger", "import _ \""+module+"/ledger/state\"\n"),
			"ledger may not import ledger/state"},
		{"outer room from within", "rdmanet/p2p/a.go",
			source("p2p", "import _ \""+module+"/rdmanet/memory\"\n"),
			"rdmanet/p2p may not import rdmanet/memory"},
		{"own folder below", "node/api/a.go", source("api",
			"import _ \""+module+"/node/api/ledgerdv1\"\n"), ""},
		{"libp2p outside of its room", "node/driver/a.go",
			source("driver", "import _ \"github.com/libp2p/go-libp2p/core/peer\"\n"),
			"may not import github.com/libp2p"},
		{"libp2p in its room", "rdmanet/p2p/a.go",
			source("p2p", "import _ \"github.com/libp2p/go-libp2p/core/peer\"\n"), ""},
		{"all of libp2p in its room", "rdmanet/p2p/a.go",
			source("p2p", "import _ \"github.com/libp2p/go-libp2p\"\n"),
			"rdmanet/p2p may not import github.com/libp2p/go-libp2p"},
		{"a module whose name begins alike", "digraph/a.go",
			source("digraph", "import _ \"gonum.org/v1/gonumplus\"\n"),
			"may not import gonum.org/v1/gonumplus"},
		{"clock in an engine", "allconcur/a.go", source("allconcur", "import _ \"time\"\n"),
			"pure and may not import time"},
		{"chance in an engine", "allconcur/a.go", source("allconcur",
			"import _ \"math/rand/v2\"\n"), "pure and may not import math/rand/v2"},
		{"network in an engine", "order/a.go", source("order", "import _ \"net/http\"\n"),
			"pure and may not import net/http"},
		{"log in an engine", "allconcur/a.go", source("allconcur", "import _ \"log/slog\"\n"),
			"pure and may not import log/slog"},
		{"goroutine in an engine", "allconcur/a.go", source("allconcur", "func f() { go f() }\n"),
			"a.go:3: allconcur is pure and may not start a goroutine"},
		{"goroutine in the node", "node/driver/a.go", source("driver", "func f() { go f() }\n"),
			""},
		{"durations", "digraph/a.go", source("digraph", "import \"time\"\n\nvar _ = time.Hour\n"),
			""},
		{"clock beside durations", "digraph/a.go", source("digraph",
			"import \"time\"\n\nvar _ = time.Now()\n"), "pure and may not use time.Now"},
		{"clock in an engine's test", "allconcur/a_test.go",
			source("allconcur", "import _ \"time\"\n"), ""},
		{"tests' package outside of tests", "machine/a.go",
			source("machine", "import _ \""+module+"/ledger/ledgertest\"\n"),
			"machine may not import"},
		{"tests' package in the node", "node/a.go",
			source("node", "import _ \""+module+"/ledger/ledgertest\"\n"), "serves tests"},
		{"room without a line", "stuff/a.go", source("stuff", ""), "in no room"},
		{"empty name", "ledger/util/a.go", source("util", ""), "name says nothing"},
		{"no story", "ledger/a.go", []byte("package ledger\n"), "no comment that tells its story"},
		{"story of another", "ledger/a.go", []byte("// Package book is a room.\npackage ledger\n"),
			"no comment that tells its story"},
		{"no syntax", "ledger/a.go", []byte("package\n"), "expected"},
		{"function without a comment", "ledger/a.go", source("ledger", "\nfunc Seal() {}\n"),
			"exported function Seal"},
		{"method without a comment", "ledger/a.go",
			source("ledger", "\n// A is.\ntype A[T any] struct{}\n\nfunc (*A[T]) Seal() {}\n"),
			"exported method Seal"},
		{"method of a hidden type", "ledger/a.go",
			source("ledger", "\ntype a struct{}\n\nfunc (a) Seal() {}\n"), ""},
		{"type without a comment", "ledger/a.go", source("ledger", "\ntype A struct{}\n"),
			"exported type A"},
		{"constant without a comment", "ledger/a.go", source("ledger", "\nconst A = 1\n"),
			"exported const A"},
		{"group with a comment", "ledger/a.go", source("ledger",
			"\n// Kinds.\nconst (\n\tA = 1\n\tB = 2\n)\n"), ""},
		{"generated", "node/api/a.go", []byte("// Code generated by x. DO NOT EDIT.\n\npackage " +
			"api\n\nconst A = 1\n"), ""},
		{"crowd", "explorer/src/a.ts", []byte(strings.Repeat("x\n", fileLinesMax+1)), "901 lines"},
		{"full room", "explorer/src/a.ts", []byte(strings.Repeat("x\n", fileLinesMax)), ""},
		{"a long line of TypeScript", "explorer/src/a.ts", []byte("// é\n" +
			strings.Repeat("x", 101) + "\n"), "a.ts:2: 101 columns, at most 100"},
		{"a line of TypeScript that fits", "explorer/src/a.ts",
			[]byte(strings.Repeat("é", 100) + "\n"), ""},
		{"a long line of CSS", "explorer/src/a.css", []byte("\t" + strings.Repeat("x", 97)),
			"a.css:1: 101 columns"},
		{"a long line of Python", "clients/python/a.py", []byte(strings.Repeat("x", 101)),
			"a.py:1: 101 columns"},
		{"a long line of generated TypeScript", "explorer/src/gen/a_pb.ts",
			[]byte("// @generated by x\n" + strings.Repeat("x", 101)), ""},
		{"a long line of Svelte", "explorer/src/a.svelte", []byte(strings.Repeat("x", 101)), ""},
		{"open end", "explorer/src/a.ts", []byte("// TO" + "DO: later\n"), "a.ts:1: an open end"},
		{"machine path", "scripts/a", []byte("cd /wo" + "rk/main\n"), "a path of one machine"},
		{"machine path in quotes", "a.md", []byte("`/ro" + "ot/go`\n"), "a path of one machine"},
		{"web path", "explorer/src/a.ts", []byte("fetch(`${base}/ro" + "ot`)\n"), ""},
		{"host in a lock file", "explorer/package-lock.json",
			[]byte(`"resolved": "https://host/a.tgz"`), "names a host"},
		{"host in a configuration", "explorer/.npmrc", []byte("regis" + "try=https://host/\n"),
			"names a host"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			broken := check([]file{{path: test.path, content: test.content}})
			switch {
			case test.want == "" && len(broken) > 0:
				t.Errorf("nothing is wrong, but: %v", broken)
			case test.want != "" && !slices.ContainsFunc(broken, func(s string) bool {
				return strings.Contains(s, test.want)
			}):
				t.Errorf("got %q, want %q", broken, test.want)
			}
		})
	}
}
