package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
)

// newKeysPassphraseCommand returns the `ledgerd keys passphrase` command.
func newKeysPassphraseCommand() *cobra.Command {
	var keyring keyringOptions
	var path, newFile string
	var asJSON bool
	command := &cobra.Command{
		Use:   "passphrase NAME | --file FILE",
		Short: "Change, add or remove the passphrase of a key",
		Long: `Change, add or remove the passphrase of a key in the keyring, or of the key file
that --file names, such as an operator's.

The command asks for the present passphrase, if there is one, and for the new
one. The file is replaced as a whole: at any moment it has the old passphrase or
the new one. Copies of the file keep the passphrase that they have. If the old
passphrase may be known to others, and the file too, the key itself has to change.`,
		Example: `  ledgerd keys passphrase acme
  ledgerd keys passphrase --file operator.key

  # Without a terminal
  ledgerd keys passphrase acme --passphrase-file old --new-passphrase-file new

  # Remove it
  ledgerd keys passphrase acme --plain`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if (path == "") == (len(arguments) == 0) {
				return usagef("name either an organisation or a key file: `ledgerd keys " +
					"passphrase NAME` or `ledgerd keys passphrase --file FILE`")
			}
			if len(arguments) == 1 {
				name, err := parseOrganisation(arguments[0])
				if err != nil {
					return err
				}
				ring, err := keyring.open()
				if err != nil {
					return err
				}
				if _, err := ring.Inspect(name); err != nil {
					return err
				}
				path = keyFile(ring, name)
			}
			return changePassphrase(command, path, newFile, &keyring.passphrases, asJSON)
		},
		ValidArgsFunction: keyCompletion(&keyring),
	}
	keyring.bind(command)
	flags := command.Flags()
	flags.StringVar(&path, "file", "", "key file to change, instead of one in the keyring")
	flags.StringVar(&newFile, newPassphraseFlag, "",
		"file with the new passphrase (default asked for on the terminal)")
	flags.BoolVar(&keyring.passphrases.plain, plainFlag, false,
		"remove the passphrase: anyone who reads the file can sign")
	addJSONFlag(command, &asJSON)
	command.MarkFlagsMutuallyExclusive(plainFlag, newPassphraseFlag)
	return command
}

// changePassphrase writes a key file again with another passphrase, or without.
func changePassphrase(command *cobra.Command, path, newFile string, old *passphraseOptions,
	asJSON bool) error {
	next := passphraseOptions{command: command, plain: old.plain, required: true,
		openTerminal: old.openTerminal}
	if newFile != "" {
		next.files = []string{newFile}
	}
	// Replacing a link would leave the file behind it as it is.
	if target, err := os.Readlink(path); err == nil {
		return fmt.Errorf("%s is a link: name the file itself, %s", path, target)
	}
	if err := client.Reencrypt(path, old, &next); err != nil {
		return err
	}
	form := keyfile.Encrypted
	if next.plain {
		form = keyfile.Plain
	}
	if asJSON {
		return writeJSON(command.OutOrStdout(), map[string]any{"file": path, "kept_by": form})
	}
	text := "%s has a new passphrase\n"
	if next.plain {
		text = "%s has no passphrase now: anyone who reads it can sign\n"
	}
	_, err := fmt.Fprintf(command.OutOrStdout(), text, path)
	return err
}
