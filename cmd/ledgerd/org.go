package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// organisationReport is an organisation as --json prints it.
type organisationReport struct {
	Name             string   `json:"name"`
	PublicKeys       []string `json:"public_keys"`
	Shard            uint32   `json:"shard"`
	RegisteredHeight uint64   `json:"registered_height"`
	// Moving is set while it is on its way to the shard, ArrivalUnknown if the shard does not
	// answer, so that nobody can tell, and EarlierShards are where it lived before.
	Moving         bool     `json:"moving,omitempty"`
	ArrivalUnknown bool     `json:"arrival_unknown,omitempty"`
	EarlierShards  []uint32 `json:"earlier_shards,omitempty"`
	// Use is what the organisation keeps, and Quotas what it may (0 for no bound). Only org show
	// has them.
	Use    map[string]uint64 `json:"use,omitempty"`
	Quotas map[string]uint64 `json:"quotas,omitempty"`
}

func reportOrganisation(organisation *ledgerdv1.Organisation) organisationReport {
	report := organisationReport{
		Name: organisation.GetName(), PublicKeys: []string{}, Shard: organisation.GetShard(),
		RegisteredHeight: organisation.GetRegisteredHeight(), Moving: organisation.GetMoving(),
		ArrivalUnknown: organisation.GetArrivalUnknown(),
	}
	for _, home := range organisation.GetEarlierHomes() {
		report.EarlierShards = append(report.EarlierShards, home.GetShard())
	}
	for _, key := range organisation.GetPublicKeys() {
		report.PublicKeys = append(report.PublicKeys, hex.EncodeToString(key))
	}
	return report
}

// home says where the organisation lives, and where its earlier histories are.
func (r *organisationReport) home() string {
	text := fmt.Sprint(r.Shard)
	if r.Moving {
		text += ", on its way there"
	}
	if r.ArrivalUnknown {
		text += ", which does not answer: whether it has arrived there is not known"
	}
	if len(r.EarlierShards) > 0 {
		var homes []string
		for _, shard := range r.EarlierShards {
			homes = append(homes, fmt.Sprint(shard))
		}
		text += fmt.Sprintf("; before in %s, where the histories up to then are",
			strings.Join(homes, ", then "))
	}
	return text
}

// newOrgCommand returns the `ledgerd org` command.
func newOrgCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "org",
		Short: "Register organisations, and show them",
		Long: `Register organisations, show them, and say which of their keys sign what.

An organisation owns accounts and records, and its key signs whatever takes from
them. Their names begin with its name: acme:cash belongs to acme.`,
		Example: `  ledgerd org add acme
  ledgerd org list
  ledgerd org policy acme`,
	}, newOrgAddCommand(), newOrgShowCommand(), newOrgListCommand(),
		newOrgPolicyCommand())
}

// newOrgAddCommand returns the `ledgerd org add` command.
func newOrgAddCommand() *cobra.Command {
	var options postOptions
	var shard uint32
	var operators []string
	command := &cobra.Command{
		Use:   "add NAME",
		Short: "Register an organisation",
		Long: `Register an organisation, with its key in the keyring. If there is no key yet, the
command makes one.

If the organisation is registered with this key already, the command changes
nothing and succeeds. A name belongs to the first to register it, unless the
chain reserves registration to its operators (ledgerd cluster operators list): then
as many of them as have to sign anything sign, too, with the keys in the files that
--operator names.

If the ledger has several shards, one of them keeps the organisation's accounts
and records: the shard that --shard names, or else one that follows from the name,
until the operators move it (ledgerd shards move). All shards know the organisation, so any node of any shard will do to
register it.`,
		Example: `  ledgerd org add acme
  ledgerd org add acme --operator operator.key
  ledgerd org add acme --shard 1`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseOrganisation(arguments[0])
			if err != nil {
				return err
			}
			level, err := parseLevel(options.wait)
			if err != nil {
				return err
			}
			signers, err := options.keys.passphrases.operators(operators)
			if err != nil {
				return err
			}
			nodes, ctx, done, err := options.remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			known, err := nodes.Organisation(ctx, name)
			if err != nil && client.CodeOf(err) != connect.CodeNotFound {
				return err
			}
			ring, err := options.keys.open()
			if err != nil {
				return err
			}
			pinned := command.Flags().Changed("shard")
			if known != nil {
				if pinned && known.GetShard() != shard && isSharded(ctx, nodes) {
					return fmt.Errorf("%s is registered already, in shard %d, and does not "+
						"move by itself: leave --shard out, or choose another name",
						known.GetName(),
						known.GetShard())
				}
				return alreadyRegistered(command, ring, options.json, known)
			}
			key, created, err := ring.LoadOrCreate(name)
			if err != nil {
				return err
			}
			if created {
				fmt.Fprintf(command.ErrOrStderr(), "made a key for %s: %s\n",
					name, keyFile(ring, name))
			}
			// The time-out is for the nodes, not for the person that types a passphrase.
			ctx, cancel := options.remote.bound(command.Context())
			defer cancel()
			registration := ledger.Registration{Name: name, Keys: []ledger.PublicKey{key.Public()}}
			if pinned {
				registration.Shard, registration.Pinned = ledger.ShardID(shard), true
			}
			signers = append([]client.Key{key}, signers...)
			// Keep anything else out of this transaction: in a ledger of several shards it goes to
			// all of them.
			if err := options.postWith(ctx, command, nodes, signers,
				ledger.Transaction{Registrations: []ledger.Registration{registration}},
				level); err != nil || options.json {
				return err
			}
			return tellShard(ctx, command, nodes, name)
		},
		ValidArgsFunction: keyCompletion(&options.keys),
	}
	options.bind(command)
	options.keys.passphrases.bindNew()
	command.Flags().StringSliceVar(&operators, "operator", nil, "file with an operator's key, if "+
		"the chain reserves registration to its operators; several with commas or repeated, as "+
		"many as have to sign")
	command.Flags().Uint32Var(&shard, "shard", 0,
		"shard that keeps the organisation's accounts (default chosen by its name)")
	return command
}

// isSharded reports whether the nodes' ledger has several shards.
func isSharded(ctx context.Context, nodes *client.Client) bool {
	tree, err := nodes.Tree(ctx)
	return err == nil && len(tree.GetShards()) > 1
}

// tellShard prints which shard keeps an organisation, if there are several shards and the node
// knows the organisation already.
func tellShard(ctx context.Context, command *cobra.Command, nodes *client.Client,
	name ledger.OrganisationName) error {
	if !isSharded(ctx, nodes) {
		return nil
	}
	organisation, err := nodes.Organisation(ctx, name)
	if err != nil {
		return nil // Not there yet, but registered all the same.
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "shard %d keeps its accounts and records\n",
		organisation.GetShard())
	return err
}

// alreadyRegistered prints that the organisation exists. It fails if none of its keys is in the
// keyring.
func alreadyRegistered(command *cobra.Command, ring *client.Keyring, asJSON bool,
	known *ledgerdv1.Organisation) error {
	key, err := ring.Inspect(ledger.OrganisationName(known.GetName()))
	mine := false
	if err == nil {
		for _, its := range known.GetPublicKeys() {
			mine = mine || bytes.Equal(its, key.Public[:])
		}
	}
	if !mine {
		return fmt.Errorf("an organisation %s is registered already, with another key than "+
			"yours: copy its key into %s, or choose another name", known.GetName(), ring.Folder())
	}
	if asJSON {
		return writeJSON(command.OutOrStdout(), reportOrganisation(known))
	}
	_, err = fmt.Fprintf(command.OutOrStdout(),
		"%s is registered already, in block %d, with your key\n", known.GetName(),
		known.GetRegisteredHeight())
	return err
}

// newOrgShowCommand returns the `ledgerd org show` command.
func newOrgShowCommand() *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Show an organisation and its keys",
		Long: `Show an organisation: the public keys that sign for it, the block that registered it,
and what it keeps in the ledger, of how much it may (ledgerd cluster quotas).`,
		Example: `  ledgerd org show acme
  ledgerd org show acme --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseOrganisation(arguments[0])
			if err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			organisation, err := nodes.Organisation(ctx, name)
			if err != nil {
				return err
			}
			report := reportOrganisation(organisation)
			use, quotas, err := nodes.Use(ctx, name)
			switch {
			case err == nil:
				report.Use, report.Quotas = quotaNumbers(use), quotaNumbers(quotas)
			case connect.CodeOf(err) != connect.CodePermissionDenied:
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			rows := table{}
			rows.add("organisation", report.Name)
			for _, key := range report.PublicKeys {
				rows.add("public key", key)
			}
			rows.add("shard", report.home())
			rows.add("registered", fmt.Sprintf("in block %d", report.RegisteredHeight))
			for _, name := range ledger.QuotaNames {
				text := fmt.Sprint(report.Use[name])
				if quota := report.Quotas[name]; quota > 0 {
					text += fmt.Sprintf(" of %d", quota)
				}
				if report.Use != nil {
					rows.add(name, text)
				}
			}
			return rows.write(command.OutOrStdout())
		},
		ValidArgsFunction: organisationCompletion(&remote),
	}
	remote.bind(command, false)
	addJSONFlag(command, &asJSON)
	return command
}

// newOrgListCommand returns the `ledgerd org list` command.
func newOrgListCommand() *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	var limit int
	command := &cobra.Command{
		Use:   "list",
		Short: "List the organisations",
		Long:  `List the organisations by name, with their keys.`,
		Example: `  ledgerd org list
  ledgerd org list --limit 0 --json | jq -r '.organisations[].name'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			organisations, more, err := take(nodes.Organisations(ctx), limit)
			if err != nil {
				return err
			}
			reports := make([]organisationReport, len(organisations))
			rows := table{header: []string{"ORGANISATION", "BLOCK", "PUBLIC KEYS"},
				right: []bool{false, true, false}}
			several := slices.ContainsFunc(organisations, func(each *ledgerdv1.Organisation) bool {
				return each.GetShard() > 0
			})
			if several {
				rows = table{header: []string{"ORGANISATION", "SHARD", "BLOCK", "PUBLIC KEYS"},
					right: []bool{false, true, true, false}}
			}
			for i, organisation := range organisations {
				reports[i] = reportOrganisation(organisation)
				cells := []string{reports[i].Name, fmt.Sprint(reports[i].Shard),
					fmt.Sprint(reports[i].RegisteredHeight),
					strings.Join(reports[i].PublicKeys, " ")}
				if !several {
					cells = slices.Delete(cells, 1, 2)
				}
				rows.add(cells...)
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), map[string]any{"organisations": reports,
					"more": more})
			}
			return writeList(command.OutOrStdout(), &rows,
				more, "no organisations yet: register one with `ledgerd org add NAME`")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	bindLimit(command, &limit, 100)
	addJSONFlag(command, &asJSON)
	return command
}
