package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.org/m\n\ngo 1.26\n",
		"m.go":          "package m\n\nimport \"os\"\n\nfunc f() *os.File { return g() }\n",
		"g_linux.go":    "package m\n\nimport \"os\"\n\nfunc g() *os.File { return nil }\n",
		"m_test.go":     "package m\n\nvar _ = f()\n",
		"n/n.go":        "package n\n\nvar V = 1\n",
		"n/out_test.go": "package n_test\n\nimport \"example.org/m/n\"\n\nvar _ int = n.V\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ platform, wrong string }{
		{"linux/arm64", ""},
		{"darwin/arm64", "m.go:5:28: undefined: g"},
		{"linux", "OS/ARCHITECTURE"},
		{"linux/abacus", "no architecture"},
		{"abacus/amd64", "undefined: goos.IsAix"},
	} {
		err := check(dir, test.platform)
		if test.wrong == "" && err != nil || test.wrong != "" &&
			(err == nil || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%s: error %v, want %q", test.platform, err, test.wrong)
		}
	}
}
