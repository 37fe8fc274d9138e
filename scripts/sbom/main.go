// Command sbom lists what a ledgerd binary consists of.
//
//	sbom -binary FILE -version V -commit C   a CycloneDX bill of materials, as JSON
//	sbom -texts                              the licences of all components, as text
//
// The Go modules of a bill come from the build information in the binary itself, and the packages
// in the explorer from explorer/dist/licences.json, which the explorer's build writes. Licences
// come from the files in the module cache. The command fails where it finds no licence or does not
// know it, so that a person looks at it. docs/licences.md shows the components and their licences;
// the test of this command compares it, and its flag -write rewrites it.
//
// Invariant: the output depends on the binary, the sources of its modules and the arguments only.
// The time of a bill is SOURCE_DATE_EPOCH. The format is https://cyclonedx.org/docs/1.6/json/.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

func main() {
	binary := flag.String("binary", "", "write the bill of materials of this binary")
	version := flag.String("version", "", "the binary's release")
	commit := flag.String("commit", "", "the commit that the binary was built from")
	texts := flag.Bool("texts", false, "write the licences of all components")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0, *texts == (*binary != ""):
		err = errors.New("give either -binary or -texts")
	case *texts:
		err = writeTexts(os.Stdout, ".")
	default:
		err = writeBill(os.Stdout, ".", *binary, *version, *commit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// writeBill writes the bill of materials of a binary that was built from the source in root.
func writeBill(to io.Writer, root, binary, version, commit string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	build, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	modules, err := linked(root, platformOf(build))
	if err != nil {
		return err
	}
	packages, err := bundled(root)
	if err != nil {
		return err
	}
	components, err := componentsOf(build, modules, packages)
	if err != nil {
		return err
	}
	made := release{name: "ledgerd", version: version, commit: commit, binary: content,
		platform: platformOf(build), time: time.Unix(seconds, 0).UTC()}
	return encode(to, bill(made, components))
}
