// Command gotest reads the output of `go test -json`, prints a summary, and counts the tests.
//
//	go test -json ./... | gotest -counts FILE -failures FILE
//
// It prints a line for each package when the package ends, and the last lines of the output of each
// failed test. To the first FILE it appends a line for each test and subtest, "pass PACKAGE TEST",
// "fail ..." or "skip ...", so that several runs of one test can be told from several tests. To the
// second FILE it appends the printed failures, for a summary at the end of a long run.
//
// The exit status is 1 if anything failed, if there was no package, or if the input ends in the
// middle of a package. So a broken test run never looks like a short one.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// linesMax limits the number of lines kept of a test's output. The last ones are kept.
const linesMax = 600

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// key identifies a test, or a package if Test is empty.
type key struct{ Package, Test string }

// report collects the events of one run.
type report struct {
	to       io.Writer
	counts   io.Writer
	failures io.Writer
	output   map[key][]string
	tests    map[string]int // passed tests of a package that has not ended
	skipped  map[string]int
	open     map[string]bool
	ended    int
	failed   bool
}

func main() {
	name := flag.String("counts", "", "file to which a line for each test is appended")
	failures := flag.String("failures", "", "file to which the output of what failed is appended")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *name, *failures); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// errFailed means that there were failures. They have been printed.
var errFailed = errors.New("there are failures")

func run(from io.Reader, to io.Writer, counts, failures string) (err error) {
	r := report{
		to: to, output: map[key][]string{}, tests: map[string]int{}, skipped: map[string]int{},
		open: map[string]bool{},
	}
	for _, file := range []struct {
		name string
		to   *io.Writer
	}{{counts, &r.counts}, {failures, &r.failures}} {
		*file.to = io.Discard
		if file.name == "" {
			continue
		}
		opened, err := os.OpenFile(file.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		*file.to = opened
	}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(to, "%s", line) // from the go command itself, before any test
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(r.open) > 0:
		var names []string
		for name := range r.open {
			names = append(names, name)
		}
		slices.Sort(names)
		return fmt.Errorf("the run broke off in %s", strings.Join(names, ", "))
	case r.failed:
		return errFailed
	case r.ended == 0:
		return errors.New("no package was tested")
	}
	return nil
}

// take processes one event.
func (r *report) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.to, e.Output)
	case "build-fail":
		r.failed = true
	case "start":
		r.open[e.Package] = true
	case "output":
		kept := append(r.output[k], e.Output)
		if len(kept) > linesMax {
			kept = kept[1:]
		}
		r.output[k] = kept
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.end(e)
			return
		}
		fmt.Fprintf(r.counts, "%s %s %s\n", e.Action, e.Package,
			strings.ReplaceAll(e.Test, " ", "_"))
		switch e.Action {
		case "pass":
			r.tests[e.Package]++
		case "skip":
			r.skipped[e.Package]++
			r.say("skipped", k)
		case "fail":
			r.failed = true
			r.say("FAILED", k)
		}
		delete(r.output, k)
	}
}

// end prints a package's result.
func (r *report) end(e event) {
	r.ended++
	delete(r.open, e.Package)
	switch {
	case e.Action == "fail":
		r.failed = true
		r.say("FAILED", key{Package: e.Package})
		for k := range r.output {
			if k.Package == e.Package && k.Test != "" { // tests that a panic or a timeout ended
				r.say("BROKEN OFF", k)
				delete(r.output, k)
			}
		}
		if r.tests[e.Package] == 0 { // no failed test: the package did not build or start
			fmt.Fprintf(r.counts, "fail %s -\n", e.Package)
		}
	case r.tests[e.Package]+r.skipped[e.Package] > 0:
		fmt.Fprintf(r.to, "  ok %-58s %6.1f s %5d tests\n", e.Package, e.Elapsed,
			r.tests[e.Package])
	}
	delete(r.output, key{Package: e.Package})
	delete(r.tests, e.Package)
	delete(r.skipped, e.Package)
}

// say prints a test's output under a heading.
func (r *report) say(heading string, k key) {
	var text strings.Builder
	fmt.Fprintf(&text, "  %s %s %s\n", heading, k.Package, k.Test)
	for _, line := range r.output[k] {
		if line := strings.TrimRight(line, "\n"); !strings.HasPrefix(strings.TrimSpace(line),
			"=== ") {
			fmt.Fprintf(&text, "      %s\n", line)
		}
	}
	io.WriteString(r.to, text.String())
	if heading != "skipped" {
		r.brief(&text, k)
		// Write it in one piece: other steps append to the file, too.
		io.WriteString(r.failures, text.String())
	}
}

// message is the first line of a message of a test, as package testing prints it.
var message = regexp.MustCompile(`^ +\w+_test\.go:\d+: `)

// brief appends the first lines of a test's last messages. A reader who sees only the end of a
// summary learns from them why the test failed: behind the reason often stand long logs.
func (r *report) brief(text *strings.Builder, k key) {
	var messages []string
	for _, line := range r.output[k] {
		if message.MatchString(line) {
			messages = append(messages, strings.TrimSpace(line))
		}
	}
	if len(messages) == 0 {
		return
	}
	fmt.Fprintf(text, "      in brief, %s:\n", k.Test)
	for _, line := range messages[max(0, len(messages)-briefLines):] {
		fmt.Fprintf(text, "        %s\n", line)
	}
}

// briefLines is how many messages brief shows: also those before the one that tells the reason.
const briefLines = 16
