package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Parallel()
	const start = `{"Action":"start","Package":"p"}` + "\n"
	const pass = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
	const end = `{"Action":"pass","Package":"p","Elapsed":1.5}` + "\n"
	tests := []struct {
		name, input, printed, counted, problem string
	}{
		{"passes", start + pass + end, "ok p", "pass p TestA\n", ""},
		{"skips",
			start + `{"Action":"output","Package":"p","Test":"TestA","Output":"no data here\n"}` +
				"\n" +
				`{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + end, "no data here",
			"skip p TestA\n", ""},
		{"fails", start + pass +
			`{"Action":"output","Package":"p","Test":"TestB","Output":"1 is not 2\n"}` + "\n" +
			`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" +
			`{"Action":"fail","Package":"p"}` + "\n", "1 is not 2", "fail p TestB\n", "failures"},
		{"panics",
			start + `{"Action":"output","Package":"p","Test":"TestB","Output":"panic: oh\n"}` +
				"\n" +
				`{"Action":"fail","Package":"p"}` + "\n", "panic: oh", "fail p -\n", "failures"},
		{"does not build", `{"ImportPath":"p","Action":"build-output","Output":"a.go:1: oh\n"}` +
			"\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n" +
			start + `{"Action":"fail","Package":"p"}` + "\n", "a.go:1: oh", "fail p -\n",
			"failures"},
		{"breaks off", start + pass, "", "pass p TestA\n", "broke off in p"},
		{"nothing", "", "", "", "no package"},
		{"the go command complains", "go: no such module\n", "no such module", "", "no package"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var printed strings.Builder
			counts, failures := filepath.Join(t.TempDir(), "counts"),
				filepath.Join(t.TempDir(), "failures")
			err := run(strings.NewReader(test.input), &printed, counts, failures)
			if test.problem == "" && err != nil || test.problem != "" &&
				(err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("error %v, want %q", err, test.problem)
			}
			if test.name == "fails" && !errors.Is(err, errFailed) {
				t.Errorf("error %v, want errFailed", err)
			}
			if !strings.Contains(printed.String(), test.printed) {
				t.Errorf("printed %q, want %q", &printed, test.printed)
			}
			failed, err := os.ReadFile(failures)
			if err != nil || strings.Contains(string(failed),
				"FAILED") != (test.problem == "failures") {
				t.Errorf("of failures stands %q (%v)", failed, err)
			}
			counted, err := os.ReadFile(counts)
			if err != nil || !strings.HasSuffix(string(counted), test.counted) {
				t.Errorf("counted %q (%v), want %q", counted, err, test.counted)
			}
		})
	}
}

// The reason for a failure stands at the end of the summary, even if long logs come after it.
func TestBrief(t *testing.T) {
	t.Parallel()
	input := `{"Action":"start","Package":"p"}` + "\n"
	output := func(text string) {
		input += fmt.Sprintf(`{"Action":"output","Package":"p","Test":"TestB","Output":"%s\n"}`+
			"\n", text)
	}
	output("    b_test.go:7: the disk is full")
	for range linesMax / 2 {
		output("        a line of a log")
	}
	input += `{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" +
		`{"Action":"fail","Package":"p"}` + "\n"
	failures := filepath.Join(t.TempDir(), "failures")
	err := run(strings.NewReader(input), io.Discard, "", failures)
	if !errors.Is(err, errFailed) {
		t.Error(err)
	}
	failed, err := os.ReadFile(failures)
	if err != nil || !strings.Contains(string(failed), "a line of a log\n"+
		"      in brief, TestB:\n        b_test.go:7: the disk is full\n") {
		t.Errorf("%s (%v)", failed, err)
	}
}
