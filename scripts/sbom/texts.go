package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// writeTexts writes all licences and notices that have to accompany the binaries. Equal texts stand
// once.
func writeTexts(to io.Writer, root string) error {
	modules, err := everywhere(root)
	if err != nil {
		return err
	}
	packages, err := bundled(root)
	if err != nil {
		return err
	}
	owners := map[string][]string{}
	var texts []string // in the order of their first owners
	add := func(owner, text string) {
		text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
		if owners[text] == nil {
			texts = append(texts, text)
		}
		owners[text] = append(owners[text], owner)
	}
	for _, m := range modules {
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			add(m.path+" "+m.version+": "+path.Clean(name), m.files[name])
		}
	}
	for _, p := range packages {
		text := p.text
		if text == "" {
			text = "The package contains no file with its licence, which is " + p.licence + "."
		}
		add("npm "+p.name+" "+p.version, text)
	}
	line := strings.Repeat("-", 80)
	fmt.Fprintf(to, "The ledgerd binary contains the components below, under these licences.\n")
	for _, text := range texts {
		if _, err := fmt.Fprintf(to, "\n%s\n%s\n\n%s\n", line,
			strings.Join(owners[text], "\n"), text); err != nil {
			return err
		}
	}
	return nil
}

// page returns docs/licences.md. It leaves out versions, which a release's bill of materials has.
func page(modules []*module, packages []npmPackage) string {
	var b strings.Builder
	b.WriteString(`# Licences of dependencies

ledgerd is under the Apache License 2.0. Its binary contains the Go modules and npm packages below.
The archive of a release contains the texts of their licences, in THIRD_PARTY_LICENCES, and a bill
of materials with versions and checksums.

This page is generated: ` + "`go test ./scripts/sbom -run Licences -write`" + `.

## Go modules

| module | licence |
|---|---|
`)
	for _, m := range modules {
		name := "`" + m.path + "`"
		if m.path == "std" {
			name = "Go's standard library"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, m.licence)
	}
	b.WriteString("\n## npm packages in the explorer\n\n| package | licence |\n|---|---|\n")
	for _, p := range packages {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p.name, p.licence)
	}
	return b.String()
}
