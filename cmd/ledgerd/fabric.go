package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/fabric"
)

// fabricReport is what ledgerd fabric prints with --json.
type fabricReport struct {
	Fabrics []fabric.Provider `json:"fabrics"`
	Devices []fabric.Device   `json:"rdma_devices"`
	// Trouble is the reason why the devices could not be listed.
	Trouble string `json:"trouble,omitempty"`
}

// newFabricCommand returns the `ledgerd fabric` command.
func newFabricCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "fabric",
		Short: "Show which fabrics work on this machine, and measure them",
		Long: `Show which fabrics nodes can use on this machine, and list its RDMA devices.

A ledger's nodes talk over one of five fabrics, the same for all of them:

  memory       all nodes in one process: to try things, and to measure
  p2p          TCP, authenticated and encrypted: the default, it needs nothing
  p2p-trusted  TCP without encryption: faster, for a network that no one else
               can access; the nodes still prove their identities
  shm          the same, with shared memory and UNIX sockets between nodes of one
               user on one machine (Linux): for test networks and single machines.
               Nodes of p2p-trusted may be among them
  verbs        RDMA: network cards write into other nodes' memory by themselves.
               Any card that libibverbs knows will do, or Soft-RoCE, which is
               the same in software and needs no card

Choose with --fabric at ledgerd testnet, start and bench, or with kind under
[fabric] in a node's config.toml. If a fabric cannot be used here, this command
lists everything that is missing and what to do about it.

An RDMA device's addresses are its GIDs. A node takes the first RoCE v2 address
of IPv4; device and gid under [fabric] choose others.`,
		Example: `  ledgerd fabric
  ledgerd fabric measure
  ledgerd fabric --json`,
		RunE: func(command *cobra.Command, _ []string) error {
			report := fabricReport{Fabrics: fabric.Providers()}
			devices, err := fabric.Devices()
			if err != nil {
				report.Trouble = err.Error()
			}
			report.Devices = append([]fabric.Device{}, devices...)
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			return writeFabrics(command.OutOrStdout(), report)
		},
	}
	addJSONFlag(command, &asJSON)
	run := command.RunE
	newGroupCommand(command, newFabricMeasureCommand())
	command.RunE = run
	return command
}

// writeFabrics writes a report as text.
func writeFabrics(out io.Writer, report fabricReport) error {
	rows := &table{header: []string{"fabric", "here", "what it is"},
		colour: func(column int, cell string) string {
			switch {
			case column == 1 && cell == "yes":
				return colourGood
			case column == 1:
				return colourWait
			}
			return colourNone
		}}
	var text strings.Builder
	for _, provider := range report.Fabrics {
		here := "yes"
		if !provider.Usable {
			here = "no"
			fmt.Fprintf(&text, "\n%s needs, on this machine:\n", provider.Kind)
			for _, missing := range provider.Missing {
				fmt.Fprintf(&text, "  - %s\n    %s\n", sanitize(missing.What, 0), missing.Remedy)
			}
		}
		rows.add(string(provider.Kind), here, provider.About)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	switch {
	case report.Trouble != "":
		fmt.Fprintf(&text, "\nRDMA devices: they cannot be listed: %s\n",
			sanitize(report.Trouble, 0))
	case len(report.Devices) == 0:
		text.WriteString("\nRDMA devices: none\n")
	default:
		text.WriteString("\nRDMA devices:\n")
	}
	for _, device := range report.Devices {
		access := "programs may open it"
		switch {
		case device.File == "":
			access = "no file to open it by"
		case !device.Openable:
			access = "this user may not open " + sanitize(device.File, 0)
		}
		fmt.Fprintf(&text, "  %s: %s\n", sanitize(device.Name, 0), access)
		for _, port := range device.Ports {
			fmt.Fprintf(&text, "    port %d: %s, %s, %s\n", port.Number, sanitize(port.State, 0),
				sanitize(port.Link, 0), sanitize(port.Rate, 0))
			for _, gid := range port.GIDs {
				line := fmt.Sprintf("      GID %-3d %-39s  %-10s  %s", gid.Index, gid.Address,
					sanitize(gid.Type, 0), sanitize(gid.Interface, 0))
				text.WriteString(strings.TrimRight(line, " ") + "\n")
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
