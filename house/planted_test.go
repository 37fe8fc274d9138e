package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlantedBugsHaveTests checks that each test named in the table of planted bugs exists.
func TestPlantedBugsHaveTests(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../docs/design/planted-bugs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("\\| `([a-z/]+)` `(Test[A-Za-z]+)` \\|").FindAllStringSubmatch(
		string(table), -1)
	if len(rows) < 20 {
		t.Fatalf("only %d rows name a test", len(rows))
	}
	for _, row := range rows {
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(row[1]), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+row[2]+"(")
		}
		if !found {
			t.Errorf("there is no test %s in %s", row[2], row[1])
		}
	}
}
