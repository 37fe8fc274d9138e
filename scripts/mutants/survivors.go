package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// survivors are the mutants that may survive, each with the reason.
type survivors map[place]string

// readSurvivors reads the list of argued survivors:
//
//	# a comment
//	shard/turn/gate.go Gate.Activate: if s.early.run <= run {
//		CONDITIONALS_BOUNDARY#1: the reason, which may
//			continue on lines with a deeper indent
//
// A line of source stands for all lines of its function with this text. KIND#2 is the second mutant
// of a kind on the line. Several mutants with one reason are separated by ", ".
func readSurvivors(from io.Reader) (survivors, error) {
	list := survivors{}
	var at, text string
	var last []place
	number := 0
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line := lines.Text()
		number++
		trimmed := strings.TrimSpace(line)
		switch depth := len(line) - len(strings.TrimLeft(line, "\t")); {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case depth == 0:
			var found bool
			if at, text, found = strings.Cut(line, ": "); !found {
				return nil, fmt.Errorf("line %d: want FILE FUNCTION: LINE OF SOURCE", number)
			}
			last = nil
		case depth == 1:
			names, reason, found := strings.Cut(trimmed, ": ")
			if !found || text == "" {
				return nil, fmt.Errorf("line %d: want KIND#NUMBER: REASON below a line of source",
					number)
			}
			last = nil
			for name := range strings.SplitSeq(names, ", ") {
				kind, which, _ := strings.Cut(name, "#")
				n, err := strconv.Atoi(which)
				if err != nil {
					return nil, fmt.Errorf("line %d: want KIND#NUMBER, have %s", number, name)
				}
				file, function, _ := strings.Cut(at, " ")
				p := place{file: file, function: function, text: strings.TrimSpace(text),
					kind: kind, number: n}
				if list[p] != "" {
					return nil, fmt.Errorf("line %d: %s is listed twice", number, name)
				}
				list[p] = reason
				last = append(last, p)
			}
		default:
			if last == nil {
				return nil, fmt.Errorf("line %d: a reason continues that has not begun", number)
			}
			for _, p := range last {
				list[p] += " " + trimmed
			}
		}
	}
	return list, nil
}

// stale lists the survivors that are no longer mutants, in the order of their places.
func (s survivors) stale(mutants []*mutant) (list []place) {
	there := map[place]bool{}
	for _, m := range mutants {
		there[m.place] = true
	}
	for p := range s {
		if !there[p] {
			list = append(list, p)
		}
	}
	return sorted(list)
}
