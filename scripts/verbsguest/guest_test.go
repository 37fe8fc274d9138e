//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/scripts/verbsguest/agenda"
)

// entries reads an archive back.
func entries(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for at := 0; ; {
		head := archive[at : at+110]
		field := func(k int) int {
			value, err := strconv.ParseUint(string(head[6+8*k:14+8*k]), 16, 32)
			if err != nil {
				t.Fatalf("the head at %d: %v", at, err)
			}
			return int(value)
		}
		if string(head[:6]) != "070701" {
			t.Fatalf("no head at %d: %q", at, head)
		}
		size, length := field(6), field(11)
		name := string(archive[at+110 : at+110+length-1])
		at += (110 + length + 3) &^ 3
		if name == "TRAILER!!!" {
			return found
		}
		found[fmt.Sprintf("%s %o", name, field(1))] = string(archive[at : at+size])
		at += (size + 3) &^ 3
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(source, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	a := newArchive(&written)
	a.copy("/deep/in/file", source, 0o755)
	a.copy("/deep/in/file", "/nowhere", 0o755) // exists already
	a.write("/deep/text", []byte("odd"))
	if err := a.finish(agenda.Agenda{Device: "rxe0"}); err != nil {
		t.Fatal(err)
	}
	got := entries(t, written.Bytes())
	if len(got) != 5 || got["deep/in/file 100755"] != "contents" ||
		got["deep/text 100644"] != "odd" || !strings.Contains(got["agenda.json 100644"], `"rxe0"`) {
		t.Errorf("%q", got)
	}
	broken := newArchive(&written)
	broken.copy("/file", "/nowhere/at/all", 0o755)
	if err := broken.finish(agenda.Agenda{}); err == nil {
		t.Error("a file that is not there is none to the archive")
	}
}

// A kept kernel is checked before its use: every file must have its recorded checksum.
func TestKeptKernel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(folder string) error
		says string // "" if the kernel is intact
	}{
		"sound": {func(string) error { return nil }, ""},
		"another image": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, imageFile), []byte("x"), 0o600)
		}, "another checksum"},
		"a module is gone": {func(folder string) error {
			return os.Remove(filepath.Join(folder, modulesFolder, "01-rdma_rxe.ko"))
		}, "no such file"},
		"no checksums": {func(folder string) error {
			return os.Remove(filepath.Join(folder, sumsFile))
		}, sumsFile},
		"half a line": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, sumsFile), []byte("12"), 0o600)
		}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), kernelPrefix+"6.1.0-1-amd64")
			if err := os.MkdirAll(filepath.Join(folder, modulesFolder), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{imageFile, modulesFolder + "/01-rdma_rxe.ko",
				modulesFolder + "/00-ib_core.ko"} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(file),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := writeSums(folder); err != nil {
				t.Fatal(err)
			}
			if err := test.harm(folder); err != nil {
				t.Fatal(err)
			}
			k, err := keptKernel(folder)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want an error with %q", err, test.says)
				}
				return
			}
			want := []string{filepath.Join(folder, modulesFolder, "00-ib_core.ko"),
				filepath.Join(folder, modulesFolder, "01-rdma_rxe.ko")}
			if err != nil || k.version != "6.1.0-1-amd64" || !slices.Equal(k.modules, want) {
				t.Errorf("%+v, %v", k, err)
			}
		})
	}
}

// The output of all programs comes on one port, after the mark of each program.
func TestOutputsOfPrograms(t *testing.T) {
	t.Parallel()
	m := machine{outputs: map[string]*bytes.Buffer{}}
	m.readOutput(strings.NewReader("lost\n" + agenda.OutputMark + "one\na\nb" + agenda.OutputMark +
		"two\nc"))
	if one, two := string(m.output("one")), string(m.output("two")); one != "a\nb" || two != "c" ||
		m.output("three") != nil {
		t.Errorf("one wrote %q, two %q", one, two)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	if err != nil || len(all) == 0 || len(all) == len(steps) ||
		slices.ContainsFunc(all, func(s step) bool { return s.apart }) {
		t.Errorf("%d steps, %v", len(all), err)
	}
	if one, err := choose([]string{steps[0].name}); err != nil || len(one) != 1 {
		t.Errorf("%+v, %v", one, err)
	}
	if _, err := choose([]string{"nonsense"}); err == nil ||
		!strings.Contains(err.Error(), steps[0].name) {
		t.Errorf("%v", err)
	}
}
