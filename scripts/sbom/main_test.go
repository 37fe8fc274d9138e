package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var write = flag.Bool("write", false, "write docs/licences.md")

const root = "../.."

// TestLicencesPage compares docs/licences.md with what the binaries link. It reads the module cache
// only.
func TestLicencesPage(t *testing.T) {
	t.Parallel()
	modules, err := everywhere(root)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := bundled(root)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(root, "docs/licences.md")
	want := page(modules, packages)
	if *write {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s lists other components than the binaries have: read the licences of the new "+
			"ones, then run go test ./scripts/sbom -run Licences -write", name)
	}
}

func TestEveryPackageOfTheBundleIsLocked(t *testing.T) {
	t.Parallel()
	packages, err := bundled(root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range packages {
		found[p.name] = true
		if p.version == "" || p.licence == "" || len(p.sum) != 128 {
			t.Errorf("%+v is incomplete", p)
		}
	}
	if !found["svelte"] || !found["uplot"] || found["vite"] {
		t.Errorf("the bundle has the packages %v", found)
	}
}

func TestLockedSum(t *testing.T) {
	t.Parallel()
	sha := "sha512-" + strings.Repeat("A", 86) + "=="
	lock := map[string]lockEntry{
		"":                                  {Version: "1.0.0"},
		"node_modules/a":                    {"1.0.0", sha},
		"node_modules/b/node_modules/a":     {"2.0.0", sha},
		"node_modules/@scope/a":             {"3.0.0", sha},
		"node_modules/old":                  {"1.0.0", "sha1-AAAA"},
		"node_modules/other_node_modules/a": {"4.0.0", sha},
	}
	for _, test := range []struct {
		name, version string
		found         bool
	}{
		{"a", "1.0.0", true}, {"a", "2.0.0", true}, {"a", "3.0.0", false},
		{"@scope/a", "3.0.0", true}, {"a", "4.0.0", false}, {"old", "1.0.0", false},
		{"b", "1.0.0", false},
	} {
		sum, err := lockedSum(lock, test.name, test.version)
		if (err == nil) != test.found || test.found && sum != strings.Repeat("0", 128) {
			t.Errorf("%s %s: %q, %v", test.name, test.version, sum, err)
		}
	}
}

func TestLicenceOf(t *testing.T) {
	t.Parallel()
	const (
		mit = "Permission is hereby granted, free of charge, to any person obtaining a copy\n" +
			"of this software and associated documentation files (the \"Software\"), to deal"
		apache = "  Apache License\n  Version 2.0, January 2004"
		two    = "Redistribution and use in source and binary forms, with or without\nmodification"
		three  = two + ", are permitted. Neither the name of"
	)
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string // "" for an error
	}{
		{"one", map[string]string{"LICENSE": mit}, "MIT"},
		{"two clauses", map[string]string{"LICENSE": two}, "BSD-2-Clause"},
		{"three clauses", map[string]string{"LICENSE": three}, "BSD-3-Clause"},
		{"several in a file", map[string]string{"LICENSE": three + apache + mit},
			"Apache-2.0 AND BSD-3-Clause AND MIT"},
		{"a package's own", map[string]string{"LICENSE": apache, "hash/LICENSE.txt": mit},
			"Apache-2.0 AND MIT"},
		{"the same twice", map[string]string{"LICENSE": mit, "hash/LICENSE.txt": mit}, "MIT"},
		{"a choice", map[string]string{"LICENSE": "This is dual-licensed. " + mit,
			"LICENSE-APACHE": apache}, "Apache-2.0 OR MIT"},
		{"a choice in a package only", map[string]string{"LICENSE": apache,
			"hash/LICENSE": "dual licensed " + mit}, "Apache-2.0 AND MIT"},
		{"a choice by reference", map[string]string{"LICENSE.md": "Licensed under the Permissive " +
			"License Stack, meaning either of: <https://www.apache.org/licenses/LICENSE-2.0>, " +
			"<https://opensource.org/licenses/MIT>"}, "Apache-2.0 OR MIT"},
		{"for parts", map[string]string{"LICENSE": mit, "THIRD_PARTY_LICENSES/x": "Ask us."},
			"MIT"},
		{"a notice", map[string]string{"LICENSE": mit, "NOTICE": "Made by us."}, "MIT"},
		{"only a notice", map[string]string{"NOTICE": mit}, ""},
		{"nothing", nil, ""},
		{"unknown", map[string]string{"LICENSE": "All rights reserved."}, ""},
		{"one of two unknown", map[string]string{"LICENSE": mit, "x/COPYING": "Ask us."}, ""},
	} {
		got, err := licenceOf(test.files)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}

// TestPlatforms compares the platforms here with those of scripts/release.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../release")
	if err != nil {
		t.Fatal(err)
	}
	if want := "platforms=(" + strings.Join(releases, " ") + ")\n"; !strings.Contains(
		string(script), want) {
		t.Errorf("scripts/release does not have %q", want)
	}
}

func TestLicenceNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENCE": true, "license.md": true, "LICENSE.txt": true,
		"LICENSE-APACHE": true, "COPYING": true, "UNLICENSE": true, "NOTICE": true,
		"PATENTS": true, "licence.go": false, "README.md": false, "licenser": false,
	} {
		if got := licenceName.MatchString(name) && !sourceName.MatchString(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestReadCollectsFilesUpToTheModule(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "outside", "m/LICENSE": "top", "m/license.go": "package m",
		"m/a/NOTICE": "between", "m/a/b/COPYING": "own", "m/c/LICENSE": "not linked",
		"m/THIRD_PARTY_LICENSES/x": "part", "m/a/THIRD_PARTY_LICENSES/x": "not the module's",
	} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := &module{files: map[string]string{}}
	at := filepath.Join(folder, "m")
	if err := m.read(at, filepath.Join(at, "a", "b")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"LICENSE": "top", "a/NOTICE": "between", "a/b/COPYING": "own",
		"THIRD_PARTY_LICENSES/x": "part"}
	if len(m.files) != len(want) {
		t.Errorf("read %v", m.files)
	}
	for name, text := range want {
		if m.files[name] != text {
			t.Errorf("%s: %q, want %q", name, m.files[name], text)
		}
	}
	if err := m.read(at, folder); err == nil {
		t.Error("a folder outside of the module was read")
	}
}

// sample returns build information as the binary of a release has it, and what the source has.
func sample() (*buildinfo.BuildInfo, []*module, []npmPackage) {
	sum := "h1:" + strings.Repeat("A", 43) + "="
	build := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Sum: sum},
		{Path: "example.org/b", Version: "v2.0.0+incompatible", Sum: sum},
	}}
	modules := []*module{
		{path: "example.org/a", version: "v1.0.0", licence: "MIT"},
		{path: "example.org/b", version: "v2.0.0+incompatible", licence: "Apache-2.0 OR MIT"},
		{path: "std", version: "1.26.8", licence: "BSD-3-Clause"},
	}
	packages := []npmPackage{{name: "@scope/p", version: "1.0.0", licence: "MIT", sum: "00"}}
	return build, modules, packages
}

func TestBill(t *testing.T) {
	t.Parallel()
	build, modules, packages := sample()
	components, err := componentsOf(build, modules, packages)
	if err != nil {
		t.Fatal(err)
	}
	r := release{name: "ledgerd", version: "v1.2.3", commit: "c0ffee", platform: "linux/amd64",
		binary: []byte("binary"), time: time.Unix(1e9, 0).UTC()}
	var text, again bytes.Buffer
	if err := encode(&text, bill(r, components)); err != nil {
		t.Fatal(err)
	}
	if err := encode(&again, bill(r, components)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text.Bytes(), again.Bytes()) {
		t.Error("two bills of one binary differ")
	}
	var got document
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range got.Components {
		refs = append(refs, c.URL)
	}
	want := "pkg:golang/std@1.26.8 pkg:golang/example.org/a@v1.0.0 " +
		"pkg:golang/example.org/b@v2.0.0%2Bincompatible pkg:npm/%40scope/p@1.0.0"
	if strings.Join(refs, " ") != want {
		t.Errorf("components %v, want %s", refs, want)
	}
	if on := got.Dependencies[0]; on.Ref != "ledgerd" || strings.Join(on.On, " ") != want {
		t.Errorf("ledgerd depends on %+v", on)
	}
	if len(got.Dependencies) != 5 {
		t.Errorf("%d dependencies are described, want 5", len(got.Dependencies))
	}
	// printf binary | sha256sum
	const sum = "9a3a45d01531a20e89ac6ae10b0b0beb0492acd7216a368aa062d1a5fecaf9cd"
	whole := got.Metadata.Component
	if whole.Hashes[0].Content != sum || whole.Version != "v1.2.3" {
		t.Errorf("the bill is for %+v", whole)
	}
	if got.Metadata.Timestamp != "2001-09-09T01:46:40Z" {
		t.Errorf("the time is %s", got.Metadata.Timestamp)
	}
	if got.Components[1].Licences[0].Licence.ID != "MIT" ||
		got.Components[2].Licences[0].Expression != "Apache-2.0 OR MIT" {
		t.Errorf("licences %+v, %+v", got.Components[1].Licences, got.Components[2].Licences)
	}
}

// TestBillRefuses plants one disagreement between a binary and its source at a time.
func TestBillRefuses(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(b *buildinfo.BuildInfo, m []*module){
		"another Go":      func(b *buildinfo.BuildInfo, _ []*module) { b.GoVersion = "go1.26.9" },
		"another version": func(b *buildinfo.BuildInfo, _ []*module) { b.Deps[0].Version = "v0.1" },
		"unknown module":  func(b *buildinfo.BuildInfo, _ []*module) { b.Deps[0].Path = "x" },
		"module missing":  func(b *buildinfo.BuildInfo, _ []*module) { b.Deps = b.Deps[:1] },
		"no checksum":     func(b *buildinfo.BuildInfo, _ []*module) { b.Deps[1].Sum = "" },
		"replacement": func(b *buildinfo.BuildInfo, _ []*module) {
			b.Deps[0].Replace = &debug.Module{Path: "../a"}
		},
	} {
		build, modules, packages := sample()
		plant(build, modules)
		if _, err := componentsOf(build, modules, packages); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := writeTexts(&out, root); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"github.com/dgraph-io/badger/v4 ", "std ", "npm svelte ",
		"Apache License", "Permission is hereby granted"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the texts do not have %q", want)
		}
	}
}
