package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/home"
)

// forgetReason is the recorded reason for the new identity of a disk after `ledgerd forget`.
const forgetReason = "an operator said that the disk was rolled back or copied (ledgerd forget)"

// forgetReport is what ledgerd forget --json prints.
type forgetReport struct {
	Name   string       `json:"name"`
	Home   string       `json:"home"`
	Disk   home.DiskID  `json:"disk"`
	Before *home.DiskID `json:"before"` // null if the home had none
}

// newForgetCommand returns the `ledgerd forget` command.
func newForgetCommand() *cobra.Command {
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:   "forget --home DIR",
		Short: "Declare that a node's disk was rolled back",
		Long: `Declare that a node's disk was rolled back, so that it may have forgotten what it
acknowledged.

A node detects by itself that its data or its promises were removed, or that its
home is a copy: its files record their inode and birth time. It cannot detect that
its whole disk was rolled back at once. Run this command before you start a node

  - whose volume or virtual machine was restored from a snapshot or an image
  - whose home was overwritten, file by file, with a copy that was taken since
    the node was last started

The disk gets a new identity. Nothing is removed: the node keeps its blocks,
follows the others, and fetches what it lacks.

If a disk that forgot still counts, the ledger can lose transactions that were
acknowledged as durable. If you are not sure, run this command: it costs the node
no more than catching up. But do not run it on half of a ledger's nodes or more:
the remaining nodes are no majority then.

The node must not be running. The keys of --json:

  name, home   the node
  disk         the new identity
  before       the previous one, or null`,
		Example: `  ledgerd forget --home net/node-0`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			h, err := loadHome(dir)
			if err != nil {
				return err
			}
			report, err := forget(h)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSONLine(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s has a new disk: %s\n", report.Name,
				report.Disk)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&dir, "home", "", "the node's home folder (required)")
	addJSONFlag(command, &asJSON)
	return command
}

// forget gives the disk of a home a new identity.
func forget(h *home.Home) (*forgetReport, error) {
	before, err := h.Disk()
	if err != nil {
		return nil, err
	}
	disk, err := h.Forget(forgetReason)
	if errors.Is(err, home.ErrLocked) {
		return nil, fmt.Errorf("%w: the node in %s is running; stop it first", err, h.Dir)
	}
	if err != nil {
		return nil, err
	}
	report := &forgetReport{Name: h.Name(), Home: h.Dir, Disk: disk.ID}
	if !before.ID.IsZero() {
		report.Before = &before.ID
	}
	return report, nil
}
