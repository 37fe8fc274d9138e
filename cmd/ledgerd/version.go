package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// commit is the commit of a release; the linker sets it (-ldflags "-X main.commit=...").
var commit = ""

// versionReport is what ledgerd version --json prints.
type versionReport struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// newVersionCommand returns the `ledgerd version` command.
func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Show which ledgerd this is",
		Long: `Show which ledgerd this is. The keys of --json:

  version   the release, or "development" with what is known of the source
  commit    the commit that a release was built from, or ""
  go        the version of Go that built it
  platform  the operating system and the processor`,
		Example: `  ledgerd version
  ledgerd version --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			report := versionReport{Version: programVersion(), Commit: commit,
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			out := command.OutOrStdout()
			if asJSON {
				return writeJSON(out, report)
			}
			fmt.Fprintf(out, "ledgerd %s\n", report.Version)
			if report.Commit != "" {
				fmt.Fprintf(out, "commit %s\n", report.Commit)
			}
			_, err := fmt.Fprintf(out, "%s, %s\n", report.Go, report.Platform)
			return err
		},
	}
	addJSONFlag(command, &asJSON)
	return command
}
