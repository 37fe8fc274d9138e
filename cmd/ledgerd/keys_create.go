package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// keysCreateOptions are the flags of ledgerd keys create.
type keysCreateOptions struct {
	keyring keyringOptions
	remote  signerOptions
	file    string
	next    bool
	json    bool
}

// newKeysCreateCommand returns the `ledgerd keys create` command.
func newKeysCreateCommand() *cobra.Command {
	var o keysCreateOptions
	command := &cobra.Command{
		Use:   "create NAME | --file FILE",
		Short: "Make a key for an organisation or an operator",
		Long: `Make a key for an organisation, in the keyring, or with --file for an operator.

The key is encrypted with a passphrase, which the command asks for, or reads from
--passphrase-file. With --plain there is no passphrase.

A key may also stay outside: with --signer-command or --signer-socket an external
signer makes the signatures, and with --pkcs11-module a token does, by way of the
program ledgerd-pkcs11. The command asks the signer for its public key, has it
sign something that is good for nothing, and writes a file that names the signer.
The file goes wherever a key file goes. docs/keys.md has the protocol, and how to
make a key on a token.

The ledger does not know the key until the organisation is registered with it:
ledgerd org add NAME. With --next the key is the one that ledgerd keys rotate NAME
puts in place of the present one. A key that is there already is never replaced.`,
		Example: `  ledgerd keys create acme
  ledgerd keys create acme --keys ./keys --json
  ledgerd keys create --file operator.key

  # For a program that signs by itself
  ledgerd keys create acme --passphrase-file /run/secrets/acme
  ledgerd keys create acme --plain

  # A key that another program has
  ledgerd keys create acme --signer-command "/usr/local/bin/vault-sign acme"
  ledgerd keys create acme --signer-socket /run/signer/acme.sock

  # A key on a token
  ledgerd keys create acme --pkcs11-module /usr/lib/softhsm/libsofthsm2.so \\
                           --token-label ledger --key-label acme`,
		Args:              cobra.MaximumNArgs(1),
		RunE:              o.run,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.keyring.bind(command)
	o.keyring.passphrases.bindNew()
	command.Flags().StringVar(&o.file, "file", "",
		"make an operator's key in this file, instead of one in the keyring")
	command.Flags().BoolVar(&o.next, "next", false,
		"make the key that ledgerd keys rotate will put in place of the present one")
	command.MarkFlagsMutuallyExclusive("next", "file")
	o.remote.bind(command)
	addJSONFlag(command, &o.json)
	command.MarkFlagsMutuallyExclusive(plainFlag, passphraseFlag)
	return command
}

func (o *keysCreateOptions) run(command *cobra.Command, arguments []string) error {
	if (o.file == "") == (len(arguments) == 0) {
		return usagef("name either an organisation or an operator's key file: `ledgerd keys " +
			"create NAME` or `ledgerd keys create --file FILE`")
	}
	name, path := ledger.Operator, o.file
	var err error
	if len(arguments) == 1 {
		if name, err = parseOrganisation(arguments[0]); err != nil {
			return err
		}
	}
	remote, named, err := o.remote.remote(name)
	if err != nil {
		return err
	}
	if named && (o.keyring.passphrases.plain || len(o.keyring.passphrases.files) > 0) {
		return usagef("the signer has the key, and the file needs no passphrase: leave --%s and "+
			"--%s out", plainFlag, passphraseFlag)
	}
	if len(arguments) == 1 {
		ring, err := o.keyring.open()
		if err != nil {
			return err
		}
		path = keyFile(ring, name)
		if o.next {
			path = ring.NextFile(name)
		}
		if err := os.MkdirAll(ring.Folder(), 0o700); err != nil {
			return fmt.Errorf("making the keyring's folder: %w", err)
		}
	}
	exists := fmt.Errorf("%w: %s: use it, or move the file away first", client.ErrKeyExists, path)
	if _, err := os.Lstat(path); err == nil {
		return exists // before a person thinks of a passphrase
	}
	text, err := o.encode(command.Context(), name, path, remote, named)
	if err != nil {
		return err
	}
	if err := keyfile.Create(path, text); errors.Is(err, fs.ErrExist) {
		return exists
	} else if err != nil {
		return err
	}
	return o.report(command, name, path)
}

// encode returns the text of the new file: with a new key, or with the name of an external signer
// that was tried.
func (o *keysCreateOptions) encode(ctx context.Context, name ledger.OrganisationName, path string,
	remote signer.Remote, isRemote bool) ([]byte, error) {
	if !isRemote {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
		return client.EncodeKey(name, private, path, &o.keyring.passphrases)
	}
	public, err := remote.PublicKey(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its public key: %w", remote, err)
	}
	external, err := signer.NewExternal(remote, public)
	if err != nil {
		return nil, err
	}
	defer external.Close()
	if err := external.Test(ctx, name); err != nil {
		return nil, fmt.Errorf("trying the signer: %w", err)
	}
	return keyfile.EncodeRemote(name, public, remote)
}

// report prints what was made.
func (o *keysCreateOptions) report(command *cobra.Command, name ledger.OrganisationName,
	path string) error {
	file, err := keyfile.Read(path)
	if err != nil {
		return err
	}
	report := newKeyReport(file, name, path)
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	made := "made a key for " + string(name)
	if name == ledger.Operator {
		made = "made an operator's key"
	}
	if report.Signer != "" {
		made += ", which " + report.keptBy() + " has"
	}
	text := fmt.Sprintf("%s: %s\npublic key %s\n", made, path, report.PublicKey)
	switch {
	case o.next:
		text += fmt.Sprintf("put it in place of the present key with `ledgerd keys rotate %s`\n",
			name)
	case name != ledger.Operator:
		text += fmt.Sprintf("register it with `ledgerd org add %s`\n", name)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), text)
	return err
}

// signerOptions are the flags that name an external signer.
type signerOptions struct {
	command, socket         string
	module, token, key, pin string
}

func (o *signerOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.command, "signer-command", "",
		"the key is outside: command that signs, with its arguments; a JSON list of words if one "+
			"of them has a space or a quote")
	flags.StringVar(&o.socket, "signer-socket", "",
		"the key is outside: Unix socket of a server that signs")
	flags.StringVar(&o.module, "pkcs11-module", "",
		"the key is on a token: PKCS #11 module of its vendor, a shared library")
	flags.StringVar(&o.token, "token-label", "", "label of the token")
	flags.StringVar(&o.key, "key-label", "", "label of the key on the token (default NAME)")
	flags.StringVar(&o.pin, "pin-file", "",
		"file with the PIN of the token (default asked for on the terminal)")
	command.MarkFlagsMutuallyExclusive("signer-command", "signer-socket", "pkcs11-module")
}

// remote returns the external signer that the flags name, if they name one.
func (o *signerOptions) remote(name ledger.OrganisationName) (remote signer.Remote, named bool,
	err error) {
	switch {
	case o.module == "" && (o.token != "" || o.key != "" || o.pin != ""):
		return remote, false, usagef("--token-label, --key-label and --pin-file are for a token: " +
			"name its module with --pkcs11-module")
	case o.module != "":
		remote.Command, err = o.tokenCommand(name)
	case o.command != "":
		remote.Command, err = parseWords(o.command)
	case o.socket != "":
		remote.Socket, err = filepath.Abs(o.socket)
	default:
		return remote, false, nil
	}
	if err == nil && len(remote.Command) > 0 {
		remote.Command[0], err = findProgram(remote.Command[0])
	}
	if err == nil {
		err = remote.Validate()
	}
	return remote, true, asUsage(err)
}

// tokenProgram is the program that signs with PKCS #11. It is apart from ledgerd, because it needs
// C: ledgerd is one static file.
const tokenProgram = "ledgerd-pkcs11"

// tokenCommand returns the command that signs with a token.
func (o *signerOptions) tokenCommand(name ledger.OrganisationName) (words []string, err error) {
	if o.token == "" {
		return nil, errors.New("--token-label is missing: name the token, for example as " +
			"`ledgerd-pkcs11 list` shows it")
	}
	module, err := filepath.Abs(o.module)
	if err != nil {
		return nil, err
	}
	key := cmp.Or(o.key, string(name))
	if key == "" {
		return nil, errors.New("--key-label is missing: name the operator's key on the token")
	}
	words = []string{tokenProgram, "sign", "--module", module, "--token", o.token, "--key", key}
	if o.pin != "" {
		pin, err := filepath.Abs(o.pin)
		if err != nil {
			return nil, err
		}
		words = append(words, "--pin-file", pin)
	}
	return words, nil
}

// parseWords splits a command into words: at spaces, or as a JSON list.
func parseWords(text string) ([]string, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		words, err := keyfile.ParseCommand(text)
		if err == nil && len(words) == 0 {
			err = errors.New("the list is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("--signer-command: %w", err)
		}
		return words, nil
	}
	if strings.ContainsAny(text, "'\"\\$`") {
		return nil, errors.New("--signer-command is no shell command: write a JSON list of " +
			`words, for example ["/usr/bin/sign","a b"]`)
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New("--signer-command is empty")
	}
	return words, nil
}

// findProgram returns the absolute path of a program: on the PATH, or beside ledgerd.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return filepath.Abs(path)
	}
	if self, failed := os.Executable(); failed == nil && filepath.Base(name) == name {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, failed := exec.LookPath(beside); failed == nil {
			return beside, nil
		}
	}
	if name == tokenProgram {
		return "", fmt.Errorf("%w: build it with `go build ./cmd/%s`, which needs a C compiler, "+
			"and put it beside ledgerd or on the PATH", err, tokenProgram)
	}
	return "", err
}
