package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// operatorOptions holds the flags of the commands that operators sign.
type operatorOptions struct {
	files       []string
	passphrases passphraseOptions
}

func (o *operatorOptions) bind(command *cobra.Command) {
	command.Flags().StringSliceVar(&o.files, "operator", nil,
		"file with an operator's key, for example net/operator.key; several with commas or "+
			"repeated, as many as have to sign (required)")
	o.passphrases.bind(command)
}

// load reads the operators' keys.
func (o *operatorOptions) load() ([]client.Key, error) {
	if len(o.files) == 0 {
		return nil, usagef("--operator is missing: name the file with an operator's " +
			"key, for example net/operator.key")
	}
	return o.passphrases.operators(o.files)
}

// checkOperators checks that the keys are operators' and that they are enough.
func checkOperators(charter *ledger.Charter, chain string, keys []client.Key,
	files []string) error {
	if err := checkAreOperators(charter, chain, keys, files); err != nil {
		return err
	}
	distinct := map[ledger.PublicKey]bool{}
	for _, key := range keys {
		distinct[key.Public()] = true
	}
	if len(distinct) < charter.Threshold {
		return fmt.Errorf("%d of the %d operators of chain %s have to sign, and %s here: name the "+
			"files of the others with --operator, too", charter.Threshold, len(charter.Operators),
			chain, plural(len(distinct), "key is"))
	}
	return nil
}

func checkAreOperators(charter *ledger.Charter, chain string, keys []client.Key,
	files []string) error {
	if len(charter.Operators) == 0 {
		return fmt.Errorf("chain %s has no operators in its genesis: its members can never "+
			"change; make a new chain (ledgerd init and ledgerd testnet make operators)", chain)
	}
	for i, key := range keys {
		if public := key.Public(); !charter.IsOperator(public) {
			var known []string
			for _, operator := range charter.Operators {
				known = append(known, operator.String())
			}
			return fmt.Errorf("%s is no operator's key of chain %s: its public half is %s, and "+
				"the chain's operators have %s", files[i], chain, public, strings.Join(known, ", "))
		}
	}
	return nil
}

// newClusterOperatorsCommand returns the `ledgerd cluster operators` command.
func newClusterOperatorsCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "operators",
		Short: "Show and change the operators of a ledger",
		Long: `Show and change the operators of a ledger, and how many of them have to sign.

Operators sign changes of the members, and the registration of organisations if
the ledger reserves that to them. The genesis names the first operators. As many
of the present operators as have to sign anything replace the list.`,
		Example: `  ledgerd cluster operators list
  ledgerd cluster operators set a.key b.key c.key --threshold 2 --operator a.key`,
	}, newClusterOperatorsListCommand(), newClusterOperatorsSetCommand())
}

// charterReport is the charter as --json prints it.
type charterReport struct {
	Number       uint64             `json:"number"`
	Operators    []ledger.PublicKey `json:"operators"`
	Threshold    int                `json:"threshold"`
	Registration string             `json:"registration"` // open or operators
	Quotas       map[string]uint64  `json:"quotas"`       // 0 for no bound
	Version      int                `json:"version"`      // of the chains
}

func reportCharter(charter *ledger.Charter) charterReport {
	report := charterReport{Number: charter.Number, Operators: charter.Operators,
		Threshold: charter.Threshold, Registration: registrationOf(charter),
		Quotas: quotaNumbers(charter.Quotas), Version: max(ledger.FirstVersion, charter.Version)}
	if report.Operators == nil {
		report.Operators = []ledger.PublicKey{}
	}
	return report
}

// String describes the charter in words.
func (r *charterReport) String() string {
	registrations := "any client registers organisations"
	if r.Registration == registrationOperators {
		registrations = "registrations, too"
	}
	version := ""
	if r.Version > ledger.FirstVersion {
		version = fmt.Sprintf("; version %d", r.Version)
	}
	return fmt.Sprintf("%d of %s sign, %s; quotas: %s%s", r.Threshold,
		plural(len(r.Operators), "operator"), registrations, quotaWords(r.Quotas), version)
}

// reportRules returns the policy or the charter that a transaction sets, or nil for each.
func reportRules(body *ledgerdv1.TransactionBody) (*ledger.Policy, *charterReport) {
	var rules *ledger.Policy
	if policy, err := api.PolicyFromProto(body.GetPolicy()); body.GetPolicy() != nil && err == nil {
		rules = &policy
	}
	charter, err := api.CharterFromProto(body.GetCharter())
	if body.GetCharter() == nil || err != nil {
		return rules, nil
	}
	report := reportCharter(&charter)
	return rules, &report
}

// newClusterOperatorsListCommand returns the `ledgerd cluster operators list` command.
func newClusterOperatorsListCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List the operators, and how many of them have to sign",
		Long: `List the public keys of the present operators, how many of them have to sign, and the
rule for registering organisations: any client (open), or the operators.`,
		Example: `  ledgerd cluster operators list --via http://127.0.0.1:26600
  ledgerd cluster operators list --json | jq -r '.operators[]'`,
	}
	return showCharter(command, func(charter *ledger.Charter) (any, table) {
		report := reportCharter(charter)
		rows := table{}
		rows.add("threshold", fmt.Sprintf("%d of %s", report.Threshold,
			plural(len(report.Operators), "operator")))
		rows.add("registration", report.Registration)
		rows.add("changes so far", fmt.Sprint(report.Number))
		for _, key := range report.Operators {
			rows.add("operator", key.String())
		}
		return report, rows
	})
}

// showCharter completes a command that asks a node for the charter and shows it. It shows the
// second result of view, or with --json the first.
func showCharter(command *cobra.Command,
	view func(charter *ledger.Charter) (any, table)) *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	command.Args, command.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	command.RunE = func(command *cobra.Command, _ []string) error {
		nodes, ctx, done, err := remote.connect(command.Context())
		if err != nil {
			return err
		}
		defer done()
		charter, _, err := presentCharter(ctx, nodes)
		if err != nil {
			return err
		}
		report, rows := view(&charter)
		if asJSON {
			return writeJSON(command.OutOrStdout(), report)
		}
		return rows.write(command.OutOrStdout())
	}
	bindVia(command, &remote)
	addJSONFlag(command, &asJSON)
	return command
}

// The values of --registration.
const (
	registrationOpen      = "open"
	registrationOperators = "operators"
)

func registrationOf(charter *ledger.Charter) string {
	if charter.RegistrationByOperators {
		return registrationOperators
	}
	return registrationOpen
}

// parseRegistration reports whether operators sign registrations.
func parseRegistration(text string) (byOperators bool, err error) {
	switch text {
	case registrationOpen:
		return false, nil
	case registrationOperators:
		return true, nil
	}
	return false, usagef("--registration %q: say open (anybody registers an organisation) or "+
		"operators (they sign each registration)", text)
}

func bindRegistration(command *cobra.Command, value *string, initial, usage string) {
	command.Flags().StringVar(value, "registration", initial, usage)
	completeFlag(command, "registration", cobra.FixedCompletions([]string{registrationOpen,
		registrationOperators}, cobra.ShellCompDirectiveNoFileComp))
}

// charterOptions are the flags of the commands that change the charter.
type charterOptions struct {
	remote    remoteOptions
	signing   operatorOptions
	wait, out string
	json      bool
}

func (o *charterOptions) bind(command *cobra.Command) {
	bindVia(command, &o.remote)
	o.signing.bind(command)
	command.Flags().StringVar(&o.out, "out", "",
		"write the signed change to this file instead of submitting it")
	bindWait(command, &o.wait)
	addJSONFlag(command, &o.json)
}

// presentCharter asks a node for the charter.
func presentCharter(ctx context.Context, nodes *client.Client) (ledger.Charter, string, error) {
	cluster, err := nodes.Cluster(ctx)
	if err != nil {
		return ledger.Charter{}, "", err
	}
	charter, err := api.CharterFromProto(cluster.GetCharter())
	if err != nil {
		return ledger.Charter{}, "", fmt.Errorf("the node's answer: %w", err)
	}
	return charter, cluster.GetChain(), nil
}

// run changes the present charter, signs the change, and submits it or writes it to a file. If
// check is not nil, it is asked before.
func (o *charterOptions) run(command *cobra.Command, alter func(charter *ledger.Charter) error,
	check func(ctx context.Context, nodes *client.Client) error) error {
	level, err := parseLevel(o.wait)
	if err != nil {
		return err
	}
	keys, err := o.signing.load()
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	present, chain, err := presentCharter(ctx, nodes)
	if err != nil {
		return err
	}
	change := present.Clone()
	change.Number++
	if err := alter(&change); err != nil {
		return err
	}
	checkKeys := checkOperators
	if o.out != "" {
		checkKeys = checkAreOperators
	}
	if err := checkKeys(&present, chain, keys, o.signing.files); err != nil {
		return err
	}
	if err := change.Validate(); err != nil {
		return usagef("%w", err)
	}
	if check != nil {
		if err := check(ctx, nodes); err != nil {
			return err
		}
	}
	transaction := ledger.Transaction{Charter: &ledger.CharterChange{Charter: change}}
	if o.out == "" {
		post := postOptions{json: o.json}
		return post.postWith(ctx, command, nodes, keys, transaction, level)
	}
	if err := completeTransaction(ctx, nodes, &transaction); err != nil {
		return err
	}
	bundle, err := client.Sign(command.Context(), keys, transaction)
	if err != nil {
		return err
	}
	report := signedReport{ID: bundle.ID(0).String(), File: o.out, SignedBy: o.signing.files,
		Missing: []string{}}
	if missing := present.Threshold - len(keys); missing > 0 {
		report.Missing = append(report.Missing, plural(missing, "operator"))
	}
	return report.write(command, o.json, bundle)
}

// newClusterOperatorsSetCommand returns the `ledgerd cluster operators set` command.
func newClusterOperatorsSetCommand() *cobra.Command {
	var options charterOptions
	var threshold int
	var registration string
	command := &cobra.Command{
		Use:   "set KEY... --threshold K --operator FILE",
		Short: "Replace the list of operators",
		Long: `Replace the list of operators by the keys given: each is a public key of 64 hex
digits, or a file with a key. K of them have to sign from then on.

As many of the present operators have to sign the change as have to sign anything:
name their key files with --operator. If these are in several hands, write the
change to a file with --out; others add their signatures with ledgerd tx submit
FILE --operator KEYFILE. The change takes effect for the transactions after it: one
that old operators signed before and that comes later is refused.

Without --registration, the rule for registering organisations stays as it is. In a
ledger of several shards the change holds for all of them.`,
		Example: `  # From one operator to two of three
  ledgerd cluster operators set net/operator.key b.key c.key --threshold 2 \
                                --operator net/operator.key

  # Replace one of them: two sign
  ledgerd cluster operators set net/operator.key b.key d.key --threshold 2 \
                                --operator net/operator.key --operator b.key`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			var operators []ledger.PublicKey
			for _, text := range arguments {
				public, err := readOperator(text)
				if err != nil {
					return err
				}
				operators = append(operators, public)
			}
			return options.run(command, func(charter *ledger.Charter) (err error) {
				charter.Operators, charter.Threshold = operators, threshold
				if command.Flags().Changed("registration") {
					charter.RegistrationByOperators, err = parseRegistration(registration)
				}
				return err
			}, nil)
		},
	}
	options.bind(command)
	command.Flags().IntVar(&threshold, "threshold", 1, "how many of the new operators have to sign")
	bindRegistration(command, &registration, registrationOpen,
		"who registers organisations: open or operators (default as it is)")
	return command
}

// signAsOperators adds operators' signatures to a bundle, unless it has them.
func signAsOperators(ctx context.Context, bundle *ledger.Bundle, keys []client.Key) error {
	for _, key := range keys {
		if ledger.HasSigned(bundle.Signatures(), ledger.Operator,
			[]ledger.PublicKey{key.Public()}) {
			continue
		}
		if err := key.SignBundle(ctx, bundle); err != nil {
			return err
		}
	}
	return nil
}
