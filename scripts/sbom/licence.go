package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// licenceName matches the names of files that have to accompany a binary.
var licenceName = regexp.MustCompile(
	`(?i)^((un)?licen[cs]e|copying|notice|patents)([-_.](md|txt|mit|apache|bsd|[-_a-z]+))?$`)

// sourceName matches source files with such a name, as licence.go.
var sourceName = regexp.MustCompile(`(?i)\.(go|s|c|h)$`)

// addition matches files that accompany a licence.
var addition = regexp.MustCompile(`(?i)^(notice|patents)`)

// marks recognise licences by a sentence of their text, as plain returns it.
var marks = []struct{ licence, sentence string }{
	{"Apache-2.0", "apache license version 2 0"},
	{"Apache-2.0", "www apache org licenses license 2 0"},
	{"CC0-1.0", "cc0 1 0 universal"},
	{"ISC", "permission to use copy modify and or distribute this software for any purpose with " +
		"or without fee is hereby granted"},
	{"ISC", "permission to use copy modify and distribute this software for any purpose with or " +
		"without fee is hereby granted"},
	{"MIT", "permission is hereby granted free of charge to any person obtaining a copy of this " +
		"software and associated documentation files"},
	{"MIT", "opensource org licenses mit"},
	{"MPL-2.0", "mozilla public license version 2 0"},
	{"Unlicense", "this is free and unencumbered software released into the public domain"},
}

// choices are what texts say where a user may choose one of several licences.
var choices = []string{"dual licensed", "permissive license stack meaning either of"}

// thirdParty matches folders with licences for parts of a module, which need not be in the binary.
var thirdParty = regexp.MustCompile(`(?i)^third[-_]party[-_]licen[cs]es$`)

// The licences of the BSD family share their first sentence. A third clause makes the difference.
const (
	bsd       = "redistribution and use in source and binary forms with or without modification"
	bsdClause = "neither the name"
)

// licencesIn returns the SPDX identifiers of the licences in a text.
func licencesIn(text string) []string {
	text = plain(text)
	var found []string
	for _, mark := range marks {
		if strings.Contains(text, mark.sentence) {
			found = append(found, mark.licence)
		}
	}
	switch {
	case !strings.Contains(text, bsd):
	case strings.Contains(text, bsdClause):
		found = append(found, "BSD-3-Clause")
	default:
		found = append(found, "BSD-2-Clause")
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// plain returns a text in small letters, with one space between words and no punctuation.
func plain(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ")
}

// licenceOf returns the SPDX expression for a module with these files. All licences in them hold,
// unless the module's own file offers a choice.
func licenceOf(files map[string]string) (string, error) {
	var found []string
	with := " AND "
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if addition.MatchString(path.Base(name)) || thirdParty.MatchString(path.Dir(name)) {
			continue
		}
		in := licencesIn(files[name])
		if len(in) == 0 {
			return "", fmt.Errorf("the licence in %s is not known here: read it, and add it to "+
				"marks in scripts/sbom/licence.go", name)
		}
		found = append(found, in...)
		offers := func(choice string) bool { return strings.Contains(plain(files[name]), choice) }
		if path.Dir(name) == "." && slices.ContainsFunc(choices, offers) {
			with = " OR "
		}
	}
	if len(found) == 0 {
		return "", errors.New("there is no licence in the module's folder")
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), with), nil
}
