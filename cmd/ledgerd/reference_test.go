package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/docs/pagetest"
)

// TestReference compares docs/reference/commands.md with the tree of commands. The flag -write
// writes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	pagetest.Compare(t, "commands.md", commandsPage(newRootCommand()))
}

// commandsPage renders the help of all commands as one page.
func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\nEvery command of `ledgerd`. The page is made from the help " +
		"that each command prints with `--help`;\n`go test ./cmd/ledgerd -run TestReference " +
		"-write` writes it.\n")
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n%s\n\n| command | what it does |\n|---|---|\n", group.Title)
		for _, command := range root.Commands() {
			if command.GroupID == group.ID {
				listCommand(&b, command)
			}
		}
	}
	writeCommand(&b, root)
	return b.String()
}

// listCommand writes the lines of the table for a command and for all below it.
func listCommand(b *strings.Builder, command *cobra.Command) {
	if command.IsAvailableCommand() {
		fmt.Fprintf(b, "| [%s](#%s) | %s |\n", command.CommandPath(),
			strings.ReplaceAll(command.CommandPath(), " ", "-"), pagetest.Cell(command.Short))
	}
	for _, below := range command.Commands() {
		listCommand(b, below)
	}
}

// writeCommand writes the sections of a command and of all below it.
func writeCommand(b *strings.Builder, command *cobra.Command) {
	if command.Hidden {
		return
	}
	usage := command.UseLine()
	if command.HasAvailableSubCommands() {
		usage = command.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(b, "\n## %s\n\n```\n%s\n```\n", command.CommandPath(), usage)
	writeText(b, command.Long)
	writeFlags(b, command)
	if command.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", outdent(command.Example))
	}
	for _, below := range command.Commands() {
		writeCommand(b, below)
	}
}

// writeText writes the text of a help: indented lines are code, other lines are paragraphs.
func writeText(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var prose, code []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			if strings.HasPrefix(line, "  ") {
				code = append(code, line)
				continue
			}
			writeBlock(b, prose, code)
			if len(code) > 0 {
				prose, code = nil, nil
			}
			prose = append(prose, line)
		}
		if len(prose) > 0 {
			fmt.Fprintf(b, "\n%s\n", pagetest.Wrap(strings.Join(prose, " ")))
		}
		writeBlock(b, nil, code)
	}
}

// writeBlock writes the prose and the code that follows it, once there is such code.
func writeBlock(b *strings.Builder, prose, code []string) {
	if len(code) == 0 {
		return
	}
	if len(prose) > 0 {
		fmt.Fprintf(b, "\n%s\n", pagetest.Wrap(strings.Join(prose, " ")))
	}
	fmt.Fprintf(b, "\n```\n%s\n```\n", outdent(strings.Join(code, "\n")))
}

// writeFlags writes the table of the flags that belong to the command.
func writeFlags(b *strings.Builder, command *cobra.Command) {
	head := "\n| flag | default | meaning |\n|---|---|---|\n"
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(flag)
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		value := flag.DefValue
		if value == "false" || value == "[]" {
			value = ""
		}
		fmt.Fprintf(b, "%s| %s | %s | %s |\n", head, pagetest.Code(name), pagetest.Code(value),
			pagetest.Cell(usage))
		head = ""
	})
}

// outdent removes the two spaces before the lines of an example.
func outdent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll("\n"+text, "\n  ", "\n"), "\n")
}
