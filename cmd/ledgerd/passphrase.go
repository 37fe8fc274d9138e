package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// passphraseVariable is the environment variable that stands in for --passphrase-file.
const passphraseVariable = "LEDGERD_PASSPHRASE_FILE"

const (
	passphraseFlag    = "passphrase-file"
	newPassphraseFlag = "new-passphrase-file"
	plainFlag         = "plain"
	// passphraseTries is how often a person is asked for the passphrase of one file.
	passphraseTries = 3
)

// passphraseOptions are the flags of the commands that open or write key files. They are the
// command's source of passphrases: files, or a person at the terminal.
type passphraseOptions struct {
	command  *cobra.Command
	files    []string
	variable string // environment variable in place of files, or ""
	plain    bool
	// required says that a new file must not be plain because nobody could be asked.
	required bool
	// openTerminal returns the terminal with a person at it, or nil. Tests replace it.
	openTerminal func() *os.File
}

var _ client.Passphrases = (*passphraseOptions)(nil)

// bind adds the flag of a command that opens key files.
func (o *passphraseOptions) bind(command *cobra.Command) {
	o.command, o.variable = command, passphraseVariable
	command.Flags().StringSliceVar(&o.files, passphraseFlag, nil,
		"file with the passphrase of an encrypted key file; several with commas or repeated are "+
			"tried in turn (default $"+passphraseVariable+", or asked for on the terminal)")
}

// bindNew adds the flag of a command that may write a new key file, after bind.
func (o *passphraseOptions) bindNew() {
	o.command.Flags().BoolVar(&o.plain, plainFlag, false,
		"write a new key without a passphrase: anyone who reads the file can sign")
}

// given returns the files with passphrases.
func (o *passphraseOptions) given() []string {
	if file := os.Getenv(o.variable); len(o.files) == 0 && o.variable != "" && file != "" {
		return []string{file}
	}
	return o.files
}

// Open tries the passphrases for an encrypted file.
func (o *passphraseOptions) Open(file string, try func(passphrase []byte) error) error {
	if files := o.given(); len(files) > 0 {
		err := error(keyfile.ErrPassphrase)
		for i := 0; i < len(files) && errors.Is(err, keyfile.ErrPassphrase); i++ {
			var passphrase []byte
			if passphrase, err = readPassphrase(files[i]); err != nil {
				return err
			}
			err = try(passphrase)
			clear(passphrase)
		}
		if errors.Is(err, keyfile.ErrPassphrase) {
			return &hintedError{err, fmt.Sprintf("%s has none that opens the key: name the file "+
				"with the right one with --%s, or leave it out to be asked", plural(len(files),
				"passphrase file"), passphraseFlag)}
		}
		return err
	}
	terminal := o.terminal()
	if terminal == nil {
		return &hintedError{fmt.Errorf("%w: there is none", keyfile.ErrPassphrase),
			fmt.Sprintf("the key is encrypted, and there is no terminal to ask at: name a file "+
				"with the passphrase with --%s or $%s", passphraseFlag, passphraseVariable)}
	}
	defer terminal.Close()
	for n := 1; ; n++ {
		passphrase, err := ask(o.command.Context(), terminal, "passphrase of "+file+": ")
		if err != nil {
			return err
		}
		err = try(passphrase)
		clear(passphrase)
		if !errors.Is(err, keyfile.ErrPassphrase) {
			return err
		}
		if n == passphraseTries {
			return &hintedError{err, "try again; a forgotten passphrase cannot be recovered, so " +
				"then use a copy of the key, or a new key"}
		}
		fmt.Fprintln(terminal, "that is not the passphrase")
	}
}

// New returns the passphrase of a new file. A key made by hand gets one. A script has nobody to
// ask: unless it names a passphrase, its key is plain, and a warning says so.
func (o *passphraseOptions) New(file string) ([]byte, error) {
	files, flags := o.given(), "--"+passphraseFlag+" or $"+passphraseVariable
	if o.command.Flags().Lookup(newPassphraseFlag) != nil {
		flags = "--" + newPassphraseFlag
	}
	switch {
	case o.plain: // the files are for keys that are there
		return nil, nil
	case len(files) > 1:
		return nil, usagef("a new key has one passphrase: name one file with %s", flags)
	case len(files) == 1:
		return readPassphrase(files[0])
	}
	terminal := o.terminal()
	if terminal == nil && o.required {
		return nil, fmt.Errorf("%s: there is no terminal to ask at: name a file with the "+
			"passphrase with %s, or say --%s to remove it", file, flags, plainFlag)
	}
	if terminal == nil {
		_, err := fmt.Fprintf(o.command.ErrOrStderr(), "warning: %s gets no passphrase, since "+
			"there is no terminal to ask at: anyone who reads it can sign. Name a file with a "+
			"passphrase with %s, or say --%s to be rid of this warning\n", file, flags, plainFlag)
		return nil, err
	}
	defer terminal.Close()
	for {
		first, err := ask(o.command.Context(), terminal, "new passphrase for "+file+": ")
		if err != nil {
			return nil, err
		}
		if len(first) == 0 {
			return nil, fmt.Errorf("a passphrase has at least one character: say --%s for a key "+
				"without one", plainFlag)
		}
		second, err := ask(o.command.Context(), terminal, "the same again: ")
		if err != nil {
			return nil, err
		}
		same := bytes.Equal(first, second)
		clear(second)
		if same {
			return first, nil
		}
		clear(first)
		fmt.Fprintln(terminal, "these differ")
	}
}

// terminal returns the terminal with a person at it, or nil.
func (o *passphraseOptions) terminal() *os.File {
	if o.openTerminal != nil {
		return o.openTerminal()
	}
	in, _ := o.command.InOrStdin().(io.Writer)
	if !isTerminal(o.command.ErrOrStderr()) && !isTerminal(in) {
		return nil
	}
	// The standard input may be the command's data.
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return terminal
}

// ask asks a person for a line, without echo. It ends with the context.
func ask(ctx context.Context, terminal *os.File, prompt string) ([]byte, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("asking for a passphrase: %w", err)
	}
	fmt.Fprint(terminal, prompt)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		read <- line{text, err}
	}()
	select {
	case got := <-read:
		fmt.Fprintln(terminal)
		if got.err != nil {
			return nil, fmt.Errorf("asking for a passphrase: %w", got.err)
		}
		if len(got.text) > keyfile.PassphraseBytesMax {
			clear(got.text)
			return nil, fmt.Errorf("a passphrase has at most %d bytes", keyfile.PassphraseBytesMax)
		}
		return got.text, nil
	case <-ctx.Done():
		// The goroutine waits for a key until the process ends. Only the echo matters.
		_ = term.Restore(fd, before)
		fmt.Fprintln(terminal)
		return nil, ctx.Err()
	}
}

// readPassphrase returns the first line of a file.
func readPassphrase(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the passphrase: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, keyfile.PassphraseBytesMax+3))
	if err != nil {
		return nil, fmt.Errorf("the passphrase: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 || len(line) > keyfile.PassphraseBytesMax {
		clear(text)
		return nil, fmt.Errorf("the passphrase is the first line of %s, which has to have 1 to "+
			"%d bytes", path, keyfile.PassphraseBytesMax)
	}
	return line, nil
}

// operators returns the operators' keys that files hold.
func (o *passphraseOptions) operators(files []string) ([]client.Key, error) {
	keys := make([]client.Key, len(files))
	for i, file := range files {
		if at := slices.Index(files, file); at < i { // ask once for each file
			keys[i] = keys[at]
			continue
		}
		by, err := o.signer(file)
		if err != nil {
			return nil, fmt.Errorf("the operator's key: %w", err)
		}
		keys[i] = client.Key{Organisation: ledger.Operator, Signer: by}
	}
	return keys, nil
}

// signer returns the signer of a key file: an operator's, or one outside of the keyring.
func (o *passphraseOptions) signer(path string) (signer.Signer, error) {
	file, err := keyfile.Read(path)
	if err != nil {
		return nil, err
	}
	return client.OpenSigner(file, path, o)
}
