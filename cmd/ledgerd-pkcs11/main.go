//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// pinVariable is the environment variable that stands in for --pin-file.
const pinVariable = "LEDGERD_PIN_FILE"

const (
	pinBytesMax = 256
	// callersMax bounds the connections that are served at a time.
	callersMax = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(root.ErrOrStderr(), "ledgerd-pkcs11: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags of the commands.
type options struct{ module, token, key, pin, listen string }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ledgerd-pkcs11",
		Short: "Sign for ledgerd with keys on a token",
		Long: `Sign for ledgerd with Ed25519 keys on a token, by way of its PKCS #11 module.

  ledgerd-pkcs11 list --module M
  ledgerd-pkcs11 generate --module M --token T --key acme
  ledgerd keys create acme --pkcs11-module M --token-label T --key-label acme

The PIN comes from --pin-file or LEDGERD_PIN_FILE, is asked for on the terminal, or
is typed at the token itself if it has a keypad.`,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newListCommand(), newGenerateCommand(), newSignCommand(), newServeCommand())
	return root
}

func (o *options) bind(command *cobra.Command, names ...string) {
	flags := command.Flags()
	for _, name := range names {
		switch name {
		case "module":
			flags.StringVar(&o.module, name, "", "PKCS #11 module, a shared library (required)")
		case "token":
			flags.StringVar(&o.token, name, "", "label of the token (required)")
			flags.StringVar(&o.pin, "pin-file", "", "file with the PIN (default $"+pinVariable+
				", or asked for)")
		case "key":
			flags.StringVar(&o.key, name, "", "label of the key (required)")
		case "listen":
			flags.StringVar(&o.listen, name, "", "path of the Unix socket (required)")
		}
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // a name that is not bound
		}
	}
}

func newListCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "list --module FILE",
		Short: "List the tokens",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			m, err := load(o.module)
			if err != nil {
				return err
			}
			defer m.close()
			all, err := m.tokens()
			if err != nil {
				return err
			}
			for _, each := range all {
				if each.initialised {
					fmt.Fprintf(command.OutOrStdout(), "%q  %s %s\n", each.label, each.maker,
						each.model)
				}
			}
			return nil
		},
	}
	o.bind(command, "module")
	return command
}

func newGenerateCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "generate --module FILE --token LABEL --key LABEL",
		Short: "Make an Ed25519 key on a token, which never leaves it",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.with(command.Context(), true, func(t *token) error {
				made, err := t.generate(o.key)
				if err == nil {
					fmt.Fprintln(command.OutOrStdout(), made.Public())
				}
				return err
			})
		},
	}
	o.bind(command, "module", "token", "key")
	return command
}

func newSignCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "sign --module FILE --token LABEL --key LABEL",
		Short: "Answer the requests on the standard input, for ledgerd",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.with(command.Context(), false, func(t *token) error {
				k, err := t.key(o.key)
				if err != nil {
					return err
				}
				return signer.Serve(command.Context(), command.InOrStdin(),
					command.OutOrStdout(), k.forAll, nil)
			})
		},
	}
	o.bind(command, "module", "token", "key")
	return command
}

// forAll returns the key for each organisation: which one it signs for, the ledger knows.
func (k *key) forAll(ledger.OrganisationName) (signer.Signer, error) { return k, nil }

func newServeCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "serve --module FILE --token LABEL --key LABEL --listen SOCKET",
		Short: "Serve a key on a Unix socket: one login for many commands",
		Long: `Serve a key on a Unix socket: one login for many commands. Only you can connect.

  ledgerd keys create acme --signer-socket SOCKET`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.with(command.Context(), false, func(t *token) error {
				k, err := t.key(o.key)
				if err != nil {
					return err
				}
				return serve(command.Context(), o.listen, k, command.ErrOrStderr())
			})
		},
	}
	o.bind(command, "module", "token", "key", "listen")
	return command
}

// with logs in to the token for the time of a call.
func (o *options) with(ctx context.Context, write bool, do func(*token) error) error {
	m, err := load(o.module)
	if err != nil {
		return err
	}
	defer m.close()
	t, err := m.open(o.token, write, func() ([]byte, error) { return o.readPIN(ctx) })
	if err != nil {
		return err
	}
	return do(t)
}

// readPIN returns the PIN: the first line of a file, or what a person types.
func (o *options) readPIN(ctx context.Context) ([]byte, error) {
	path := o.pin
	if path == "" {
		path = os.Getenv(pinVariable)
	}
	if path == "" {
		return askPIN(ctx, o.token)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the PIN: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, pinBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("the PIN: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 || len(text) > pinBytesMax {
		clear(text)
		return nil, fmt.Errorf("the PIN is the first line of %s, which has to have 1 to %d bytes",
			path, pinBytesMax)
	}
	return line, nil
}

// askPIN asks for the PIN on the terminal: the standard input has the requests.
func askPIN(ctx context.Context, label string) ([]byte, error) {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("the token needs its PIN, and there is no terminal to ask at: name "+
			"a file with it with --pin-file or $%s", pinVariable)
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	if before, err := term.GetState(fd); err == nil {
		stop := context.AfterFunc(ctx, func() {
			_ = term.Restore(fd, before)
			os.Exit(1) // nothing is under way
		})
		defer stop()
	}
	fmt.Fprintf(terminal, "PIN of the token %s: ", label)
	pin, err := term.ReadPassword(fd)
	fmt.Fprintln(terminal)
	if err != nil {
		return nil, fmt.Errorf("asking for the PIN: %w", err)
	}
	return pin, nil
}

// serve answers the requests of all connections to a socket, and logs what it signs.
func serve(ctx context.Context, path string, k *key, log io.Writer) error {
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s", path)
	} else if info, missing := os.Lstat(path); missing == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil { // left by a process that ended
			return err
		}
	}
	before := syscall.Umask(0o077)
	listener, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return err
	}
	var mutex sync.Mutex // of the log
	show := func(request *signer.Request, bundle *ledger.Bundle) error {
		mutex.Lock()
		defer mutex.Unlock()
		name := string(request.Message.Organisation)
		if name == "" {
			name = "an operator"
		}
		_, err := fmt.Fprintf(log, "signing for %s: %d transactions from %s on\n", name,
			bundle.Len(), bundle.ID(0))
		return err
	}
	fmt.Fprintf(log, "serving the key %s on %s\n", k.Public(), path)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	callers := make(chan struct{}, callersMax)
	for {
		callers <- struct{}{}
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		go func() {
			defer func() { <-callers }()
			defer conn.Close()
			// What a caller gets wrong is in its answer, and a lost connection is the caller's.
			_ = signer.Serve(ctx, conn, conn, k.forAll, show)
		}()
	}
}
