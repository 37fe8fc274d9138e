package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/ledger"
)

// keyReport is a key as --json prints it.
type keyReport struct {
	Organisation string `json:"organisation"`
	PublicKey    string `json:"public_key"` // hex
	File         string `json:"file"`
	// KeptBy is plain, passphrase, command or socket.
	KeptBy keyfile.Form `json:"kept_by"`
	// Signer is the external signer's command or socket, if one has the key.
	Signer string `json:"signer,omitempty"`
}

// keyFile returns the file of an organisation's key.
func keyFile(ring *client.Keyring, organisation ledger.OrganisationName) string {
	return filepath.Join(ring.Folder(), string(organisation)+".key")
}

// newKeyReport describes the key of a file.
func newKeyReport(file *keyfile.File, organisation ledger.OrganisationName,
	path string) keyReport {
	report := keyReport{Organisation: string(organisation), PublicKey: file.Public.String(),
		File: path, KeptBy: file.Form()}
	if remote, named := file.Remote(); named {
		report.Signer = remote.String()
	}
	return report
}

// reportKey describes a key of the keyring, without its passphrase.
func reportKey(ring *client.Keyring, organisation ledger.OrganisationName) (keyReport, error) {
	file, err := ring.Inspect(organisation)
	if err != nil {
		return keyReport{}, err
	}
	return newKeyReport(file, organisation, keyFile(ring, organisation)), nil
}

// keptBy describes how the key is kept.
func (r keyReport) keptBy() string {
	switch r.KeptBy {
	case keyfile.Plain:
		return "a plain file"
	case keyfile.Encrypted:
		return "a file with a passphrase"
	}
	return fmt.Sprintf("the %s %s", r.KeptBy, r.Signer)
}

// newKeysCommand returns the `ledgerd keys` command.
func newKeysCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "keys",
		Short: "Make, show and replace the keys that sign for organisations",
		Long: `Make, show, replace and revoke the keys that sign for organisations.

Anyone with an organisation's key may spend from its accounts. The keyring is a
folder with one file for each organisation, NAME.key, that only you can read. The
file has an ed25519 key, encrypted with a passphrase, or plain. Or it names an
external signer, a program or a server that has the key, such as a token with
PKCS #11 (docs/keys.md). Nodes never see keys: transactions are signed here. Keep
a copy: a lost key cannot be made again, and neither can a passphrase.

Commands ask for passphrases on the terminal. Without a terminal, name a file with
the passphrase with --passphrase-file or LEDGERD_PASSPHRASE_FILE; a new key is plain
otherwise, with a warning.

The folder is the one of --keys, or of LEDGERD_KEYS, or ledgerd/keys in your
configuration folder.`,
		Example: `  ledgerd keys create acme
  ledgerd keys list
  ledgerd keys rotate acme`,
	}, newKeysCreateCommand(), newKeysListCommand(), newKeysShowCommand(),
		newKeysPassphraseCommand(), newKeysRotateCommand(), newKeysRevokeCommand())
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
				report, err := reportKey(ring, name)
				if err != nil {
					damaged = errors.Join(damaged, err)
					continue
				}
				reports = append(reports, report)
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
			rows := table{header: []string{"ORGANISATION", "PUBLIC KEY", "KEPT BY"}}
			for _, report := range reports {
				rows.add(report.Organisation, report.PublicKey, report.keptBy())
			}
			return errors.Join(rows.write(command.OutOrStdout()), damaged)
		},
		ValidArgsFunction: organisationCompletion(&remote),
	}
	keyring.bindFolder(command)
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
			report, err := reportKey(ring, name)
			if err != nil {
				return err
			}
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
			rows.add("kept by", report.keptBy())
			return rows.write(command.OutOrStdout())
		},
		ValidArgsFunction: keyCompletion(&keyring),
	}
	keyring.bindFolder(command)
	addJSONFlag(command, &asJSON)
	command.Flags().BoolVar(&public, "public", false, "print the public key only")
	return command
}
