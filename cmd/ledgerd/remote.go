package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	reported "github.com/ledgerd/ledgerd/node/report"
)

// nodeVariable is the environment variable that names the nodes to ask.
const nodeVariable = "LEDGERD_NODE"

// completionTime limits the completion of a word.
const completionTime = time.Second

// remoteOptions are the flags of commands that talk to nodes.
type remoteOptions struct {
	nodes       []string
	timeout     time.Duration
	credentials credentials
	queue       bool // of the commands that bindQueue
}

// credentials are the flags with which a command trusts nodes and identifies itself to them.
type credentials struct{ ca, certificate, key, token string }

// The environment variables that stand in for these flags.
const (
	caVariable          = "LEDGERD_CA"
	certificateVariable = "LEDGERD_CERT"
	keyVariable         = "LEDGERD_KEY"
	tokenVariable       = "LEDGERD_TOKEN"
)

// bind adds the flags to a command.
func (c *credentials) bind(flags *pflag.FlagSet) {
	flags.StringVar(&c.ca, "ca", "", "file with the authorities that sign the nodes' "+
		"certificates, in PEM (default $"+caVariable+" or the system's)")
	flags.StringVar(&c.certificate, "cert", "", "file with your own certificate, in PEM "+
		"(default $"+certificateVariable+")")
	flags.StringVar(&c.key, "key", "", "file with the key of --cert, in PEM (default $"+
		keyVariable+")")
	flags.StringVar(&c.token, "token", "", "token that the nodes know, or @FILE for the token in "+
		"a file (default $"+tokenVariable+")")
}

// options returns the options of a client with these credentials.
func (c *credentials) options() (options client.Options, err error) {
	options.TLS, err = client.ReadTLS(cmp.Or(c.ca, os.Getenv(caVariable)),
		cmp.Or(c.certificate, os.Getenv(certificateVariable)),
		cmp.Or(c.key, os.Getenv(keyVariable)))
	if err != nil {
		return options, asUsage(err)
	}
	options.Token = cmp.Or(c.token, os.Getenv(tokenVariable))
	if file, named := strings.CutPrefix(options.Token, "@"); named {
		text, err := os.ReadFile(file)
		if err != nil {
			return options, asUsage(fmt.Errorf("--token: %w", err))
		}
		options.Token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(options.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return options, usagef("--token: a token is one word of letters, digits and signs")
	}
	return options, nil
}

// withDoorHint adds to an error of a node that let no call in what the command line lacks.
func withDoorHint(err error) error {
	if errors.As(err, new(*hintedError)) {
		return err
	}
	if client.CodeOf(err) == connect.CodeUnauthenticated {
		return &hintedError{err, "use --token TOKEN, --token @FILE, or --cert FILE and --key FILE"}
	}
	refused := (*client.DoorError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Reason {
	case client.DoorUnknownAuthority:
		return &hintedError{err, "name the authority's certificate with --ca FILE (or $" +
			caVariable + ")"}
	case client.DoorWantsCertificate:
		return &hintedError{err, "show a certificate that the node knows with --cert FILE and " +
			"--key FILE"}
	case client.DoorWrongName:
		return &hintedError{err, "call the node by one of these names with --node"}
	}
	return err
}

// bind adds the flags to a command. A command that runs until it is stopped (endless) has no
// time-out.
func (o *remoteOptions) bind(command *cobra.Command, endless bool) {
	command.Flags().StringSliceVar(&o.nodes, "node",
		nil, "address of a node; several with commas or repeated: the next is asked when one "+
			"does not answer (default $"+
			nodeVariable+" or "+client.DefaultURL+")")
	if !endless {
		command.Flags().DurationVar(&o.timeout, "timeout", time.Minute,
			"give up after this time; 0 means never")
	}
	o.credentials.bind(command.Flags())
	completeFlag(command, "node", cobra.FixedCompletions([]string{client.DefaultURL},
		cobra.ShellCompDirectiveNoFileComp))
}

// bindQueue adds the flag --queue to a command that submits what may cross shards.
func (o *remoteOptions) bindQueue(command *cobra.Command) {
	command.Flags().BoolVar(&o.queue, "queue", false, "let what crosses to a shard that is down "+
		"or full wait for it; otherwise the nodes refuse it")
}

// addresses returns the nodes to ask.
func (o *remoteOptions) addresses() []string {
	given := o.nodes
	if len(given) == 0 {
		given = strings.Split(os.Getenv(nodeVariable), ",")
	}
	var addresses []string
	for _, address := range given {
		if address = strings.TrimSpace(address); address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// connect makes the client and the context of its calls. The caller has to call done at the end.
func (o *remoteOptions) connect(ctx context.Context) (nodes *client.Client, bounded context.Context,
	done func(), err error) {
	if o.timeout < 0 {
		return nil, nil, nil, usagef("--timeout is %s: it has to be above zero, or 0 for none",
			o.timeout)
	}
	options, err := o.credentials.options()
	if err != nil {
		return nil, nil, nil, err
	}
	options.Queue = o.queue
	nodes, err = client.New(o.addresses(), options)
	if err != nil {
		return nil, nil, nil, asUsage(err)
	}
	ctx, cancel := o.bound(ctx)
	return nodes, ctx, func() {
		cancel()
		nodes.Close()
	}, nil
}

// bound returns a context that ends with the command's time-out from now on.
func (o *remoteOptions) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout > 0 {
		return context.WithTimeout(ctx, o.timeout)
	}
	return ctx, func() {}
}

// keyringOptions are the flags of the commands that use keys.
type keyringOptions struct {
	folder      string
	passphrases passphraseOptions
}

func (o *keyringOptions) bind(command *cobra.Command) {
	o.bindFolder(command)
	o.passphrases.bind(command)
}

// bindFolder is bind for a command that opens no key.
func (o *keyringOptions) bindFolder(command *cobra.Command) {
	command.Flags().StringVar(&o.folder, "keys", "", "folder of the keyring (default $"+
		client.KeysVariable+" or ledgerd/keys in your configuration folder)")
}

func (o *keyringOptions) open() (*client.Keyring, error) {
	ring, err := client.OpenKeyring(o.folder)
	if err != nil {
		return nil, err
	}
	ring.Passphrases = &o.passphrases
	return ring, nil
}

// waitLevels are the values of --wait, from the weakest promise to the strongest.
var waitLevels = []string{"admitted", "ordered", "stored", "durable", "durable-everywhere"}

// parseLevel parses a value of --wait.
func parseLevel(text string) (ledgerdv1.Level, error) {
	for i, name := range waitLevels {
		if text == name {
			return ledgerdv1.Level(i + 1), nil
		}
	}
	return 0, usagef("--wait %q is unknown: use %s", text, strings.Join(waitLevels, ", "))
}

// bindWait adds the flag --wait.
func bindWait(command *cobra.Command, value *string) {
	command.Flags().StringVar(value, "wait", "durable",
		"wait until it is admitted (checked and pending), ordered (its place is decided), "+
			"stored (on the node's disk), durable (on the disks of a majority) or "+
			"durable-everywhere (in all shards that it concerns)")
	completeFlag(command, "wait", cobra.FixedCompletions(waitLevels,
		cobra.ShellCompDirectiveNoFileComp))
}

// completing counts the command lines under way that a shell asks to complete.
var completing atomic.Int32

// completeFlag registers the values that the shell offers for a flag. Package cobra keeps them, and
// with them all commands that newRootCommand made, for as long as the process runs. So they are
// registered only for a command line that asks for them: tests run thousands of others.
func completeFlag(command *cobra.Command, flag string, values cobra.CompletionFunc) {
	if command.Flag(flag) == nil {
		panic(command.Name() + ": no such flag: " + flag)
	}
	if completing.Load() == 0 {
		return
	}
	if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(command.Name() + ": completion of --" + flag + ": " + err.Error())
	}
}

// accountCompletion completes account paths, as a node knows them. It completes nothing beyond the
// first limit arguments.
func accountCompletion(remote *remoteOptions, limit int) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, begun string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(arguments) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(command, remote, func(ctx context.Context,
			nodes *client.Client) (words []cobra.Completion) {
			accounts, _, err := take(nodes.Accounts(ctx, begun), 100)
			if err != nil {
				return nil
			}
			for _, account := range accounts {
				words = append(words, account.GetAccount())
			}
			return words
		})
	}
}

// organisationCompletion completes the names of organisations, as a node knows them.
func organisationCompletion(remote *remoteOptions) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, begun string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(command, remote, func(ctx context.Context,
			nodes *client.Client) (words []cobra.Completion) {
			organisations, _, err := take(nodes.Organisations(ctx), 1000)
			if err != nil {
				return nil
			}
			for _, organisation := range organisations {
				if strings.HasPrefix(organisation.GetName(), begun) {
					words = append(words, organisation.GetName())
				}
			}
			return words
		})
	}
}

// complete asks a node for completions. It must not take long, and it prints no errors.
func complete(command *cobra.Command, remote *remoteOptions,
	ask func(context.Context, *client.Client) []cobra.Completion) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	parent := command.Context()
	if parent == nil {
		parent = context.Background()
	}
	nodes, ctx, done, err := remote.connect(parent)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	return ask(ctx, nodes), cobra.ShellCompDirectiveNoFileComp
}

// keyCompletion completes the names in the keyring.
func keyCompletion(keyring *keyringOptions) cobra.CompletionFunc {
	return func(_ *cobra.Command, arguments []string, begun string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		ring, err := keyring.open()
		if err != nil || len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := ring.List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []cobra.Completion
		for _, name := range names {
			if strings.HasPrefix(string(name), begun) {
				words = append(words, string(name))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// parseAccount parses an account's path.
func parseAccount(text string) (ledger.AccountPath, error) {
	path, err := ledger.ParseAccountPath(text)
	if err != nil {
		return "", usagef("account %q: %w: write it as ORGANISATION:NAME, for example acme:cash",
			text, err)
	}
	return path, nil
}

// parseOrganisation parses an organisation's name.
func parseOrganisation(text string) (ledger.OrganisationName, error) {
	name := ledger.OrganisationName(text)
	if err := name.Validate(); err != nil {
		return "", usagef("organisation %q: %w", text, err)
	}
	return name, nil
}

// parseAmount parses an amount above zero.
func parseAmount(text string) (ledger.Amount, error) {
	amount, err := ledger.ParseAmount(text)
	if errors.Is(err, ledger.ErrAmount) {
		return ledger.Amount{}, asUsage(err) // it has the text
	}
	if err != nil {
		return ledger.Amount{}, usagef("amount %q: %w", text, err)
	}
	if amount.Sign() <= 0 {
		return ledger.Amount{}, usagef("amount %s: it has to be above zero; to move it back, "+
			"exchange the accounts", text)
	}
	return amount, nil
}

// parseAsset parses an asset's name; empty means the default.
func parseAsset(text string) (ledger.AssetName, error) {
	if text == "" {
		return ledger.DefaultAsset, nil
	}
	name := ledger.AssetName(text)
	if err := name.Validate(); err != nil {
		return "", usagef("asset %q: %w", text, err)
	}
	return name, nil
}

// withWriters adds to a refusal the nodes that accept writes, if the asked node knows any. They
// are named once, in the form of the flag.
func withWriters(err error) error {
	failure := (*client.Failure)(nil)
	if errors.As(err, &failure) && len(failure.Writers) > 0 {
		text := strings.Replace(err.Error(), "; "+reported.TheseTakeWrites(failure.Writers), "", 1)
		return &hintedError{&rewordedError{err, text}, "these nodes take writes: --node " +
			strings.Join(failure.Writers, ",")}
	}
	return err
}

// rewordedError is an error with another text.
type rewordedError struct {
	error
	text string
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.error }

// hintedError is an error with advice on what to do next.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Error() string { return e.error.Error() + ": " + e.hint }
func (e *hintedError) Unwrap() error { return e.error }
