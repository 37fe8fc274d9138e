package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
)

// keyReport is a key as --json prints it.
type keyReport struct {
	Organisation string `json:"organisation"`
	PublicKey    string `json:"public_key"` // hex
	File         string `json:"file"`
}

func reportKey(ring *client.Keyring, key client.Key) keyReport {
	public := key.Public()
	return keyReport{
		Organisation: string(key.Organisation), PublicKey: hex.EncodeToString(public[:]),
		File: filepath.Join(ring.Folder(), string(key.Organisation)+".key"),
	}
}

// newKeysCommand returns the `ledgerd keys` command.
func newKeysCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "keys",
		Short: "Make, show and replace the keys that sign for organisations",
		Long: `Make, show, replace and revoke the keys that sign for organisations.

Anyone with an organisation's key may spend from its accounts. The keyring is a
folder with one file for each organisation, NAME.key, that only you can read. It
is a PEM file with an ed25519 key, which openssl reads as well. Nodes never see
it: transactions are signed here. Keep a copy: a lost key cannot be made again.

The folder is the one of --keys, or of LEDGERD_KEYS, or ledgerd/keys in your
configuration folder.`,
		Example: `  ledgerd keys create acme
  ledgerd keys list
  ledgerd keys rotate acme`,
	}, newKeysCreateCommand(), newKeysListCommand(), newKeysShowCommand(),
		newKeysRotateCommand(), newKeysRevokeCommand())
}

// newKeysCreateCommand returns the `ledgerd keys create` command.
func newKeysCreateCommand() *cobra.Command {
	var keyring keyringOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key for an organisation",
		Long: `Make a key for an organisation, in the keyring.

The ledger does not know the key until the organisation is registered with it:
ledgerd org add NAME. A key that is there already is never replaced.`,
		Example: `  ledgerd keys create acme
  ledgerd keys create acme --keys ./keys --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseOrganisation(arguments[0])
			if err != nil {
				return err
			}
			ring, err := keyring.open()
			if err != nil {
				return err
			}
			key, err := ring.Create(name)
			if err != nil {
				return err
			}
			report := reportKey(ring, key)
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(),
				"made a key for %s: %s\npublic key %s\nregister it with `ledgerd org add %s`\n",
				name, report.File, report.PublicKey, name)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	keyring.bind(command.Flags())
	addJSONFlag(command, &asJSON)
	return command
}

// newKeysListCommand returns the `ledgerd keys list` command.
func newKeysListCommand() *cobra.Command {
	var keyring keyringOptions
	var remote remoteOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List the keys of the keyring, or those that the ledger has of an organisation",
		Long: `List the keys of the keyring, by organisation. Files that should be keys and are
not are reported at the end, with exit status 1.

With NAME, the command asks a node and lists the organisation's keys that the
ledger accepts now, with their roles.`,
		Example: `  ledgerd keys list
  ledgerd keys list acme
  ledgerd keys list --json | jq -r '.keys[].public_key'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			ring, err := keyring.open()
			if err != nil {
				return err
			}
			if len(arguments) == 1 {
				return listOrganisationKeys(command, &remote, ring, arguments[0], asJSON)
			}
			names, err := ring.List()
			if err != nil {
				return err
			}
			reports := []keyReport{}
			var damaged error
			for _, name := range names {
				key, err := ring.Load(name)
				if err != nil {
					damaged = errors.Join(damaged, err)
					continue
				}
				reports = append(reports, reportKey(ring, key))
			}
			if asJSON {
				return errors.Join(writeJSON(command.OutOrStdout(),
					map[string]any{"folder": ring.Folder(), "keys": reports}), damaged)
			}
			if len(names) == 0 {
				_, err := fmt.Fprintf(command.OutOrStdout(),
					"no keys in %s: make one with `ledgerd keys create NAME`\n", ring.Folder())
				return err
			}
			rows := table{header: []string{"ORGANISATION", "PUBLIC KEY"}}
			for _, report := range reports {
				rows.add(report.Organisation, report.PublicKey)
			}
			return errors.Join(rows.write(command.OutOrStdout()), damaged)
		},
		ValidArgsFunction: organisationCompletion(&remote),
	}
	keyring.bind(command.Flags())
	remote.bind(command, false)
	addJSONFlag(command, &asJSON)
	return command
}

// newKeysShowCommand returns the `ledgerd keys show` command.
func newKeysShowCommand() *cobra.Command {
	var keyring keyringOptions
	var asJSON, public bool
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the public key of an organisation, and where its key is kept",
		Long: `Show the public key of an organisation, and where its key is kept.

The private half is never printed. To move it, copy the file.`,
		Example: `  ledgerd keys show acme

  # Only the public key, for the registration by another person
  ledgerd keys show acme --public`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseOrganisation(arguments[0])
			if err != nil {
				return err
			}
			ring, err := keyring.open()
			if err != nil {
				return err
			}
			key, err := ring.Load(name)
			if err != nil {
				return err
			}
			report := reportKey(ring, key)
			switch {
			case asJSON:
				return writeJSON(command.OutOrStdout(), report)
			case public:
				_, err = fmt.Fprintln(command.OutOrStdout(), report.PublicKey)
				return err
			}
			rows := table{}
			rows.add("organisation", report.Organisation)
			rows.add("public key", report.PublicKey)
			rows.add("file", report.File)
			return rows.write(command.OutOrStdout())
		},
		ValidArgsFunction: keyCompletion(&keyring),
	}
	keyring.bind(command.Flags())
	addJSONFlag(command, &asJSON)
	command.Flags().BoolVar(&public, "public", false, "print the public key only")
	return command
}
