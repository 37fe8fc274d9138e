package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
)

// policyReport is an organisation's policy as --json prints it.
type policyReport struct {
	Organisation string `json:"organisation"`
	ledger.Policy
	// Needed is the number of keys that have to sign a change of the policy.
	Needed int `json:"needed_for_changes"`
}

// policyOptions are the flags of the commands that change a policy.
type policyOptions struct {
	post postOptions
	with []string
	out  string
}

func (o *policyOptions) bind(command *cobra.Command) {
	o.post.bind(command)
	command.Flags().StringArrayVar(&o.with, "with", nil,
		"file with a further key of the organisation that signs; repeat it")
	command.Flags().StringVar(&o.out, "out", "", "write the signed change to this file instead "+
		"of submitting it; others add their signatures with ledgerd tx submit FILE --sign")
}

// policySession is a command that changes the policy of an organisation.
type policySession struct {
	name   ledger.OrganisationName
	nodes  *client.Client
	ring   *client.Keyring
	policy ledger.Policy
	keys   []client.Key // that sign
}

// connect asks a node for the present policy, and reads the keys that sign.
func (o *policyOptions) connect(command *cobra.Command, text string) (s *policySession,
	ctx context.Context, done func(), err error) {
	name, err := parseOrganisation(text)
	if err != nil {
		return nil, nil, nil, err
	}
	s = &policySession{name: name}
	if s.ring, err = o.post.keys.open(); err != nil {
		return nil, nil, nil, err
	}
	if key, err := s.ring.Load(name); err == nil {
		s.keys = append(s.keys, key)
	} else if !errors.Is(err, client.ErrNoKey) || len(o.with) == 0 {
		return nil, nil, nil, err
	}
	for _, file := range o.with {
		by, err := o.post.keys.passphrases.signer(file)
		if err != nil {
			return nil, nil, nil, err
		}
		s.keys = append(s.keys, client.Key{Organisation: name, Signer: by})
	}
	if s.nodes, ctx, done, err = o.post.remote.connect(command.Context()); err != nil {
		return nil, nil, nil, err
	}
	if s.policy, err = presentPolicy(ctx, s.nodes, name); err != nil {
		done()
		return nil, nil, nil, err
	}
	return s, ctx, done, nil
}

// presentPolicy asks a node for an organisation's policy.
func presentPolicy(ctx context.Context, nodes *client.Client,
	name ledger.OrganisationName) (ledger.Policy, error) {
	organisation, err := nodes.Organisation(ctx, name)
	if err != nil {
		return ledger.Policy{}, err
	}
	policy, err := api.PolicyFromProto(organisation.GetPolicy())
	if err == nil {
		err = policy.Validate()
	}
	if err != nil {
		return ledger.Policy{}, fmt.Errorf("the node's answer: %w", err)
	}
	return policy, nil
}

// change signs a changed policy and submits it, or writes it to a file. It returns false if it only
// wrote the file.
func (o *policyOptions) change(ctx context.Context, command *cobra.Command, s *policySession,
	changed ledger.Policy) (submitted bool, err error) {
	level, err := parseLevel(o.post.wait)
	if err != nil {
		return false, err
	}
	changed.Number = s.policy.Number + 1
	slices.SortFunc(changed.Limits, func(a, b ledger.Limit) int {
		if order := strings.Compare(string(a.Asset), string(b.Asset)); order != 0 {
			return order
		}
		return a.Above.Compare(b.Above)
	})
	slices.Sort(changed.Assets)
	changed.Assets = slices.Compact(changed.Assets)
	if err := changed.Validate(); err != nil {
		return false, usagef("%w", err)
	}
	var signing []client.Key
	for _, key := range s.keys {
		place := slices.IndexFunc(s.policy.Keys, func(k ledger.PolicyKey) bool {
			return k.Key == key.Public()
		})
		if place < 0 {
			return false, fmt.Errorf("%s is no key of %s any more: use another one with --with "+
				"or --keys (ledgerd keys list %s shows them)", key.Public(), s.name, s.name)
		}
		if s.policy.Keys[place].Role == ledger.RoleAll && !slices.ContainsFunc(signing,
			func(k client.Key) bool { return k.Public() == key.Public() }) {
			signing = append(signing, key)
		}
	}
	if len(signing) == 0 {
		return false, fmt.Errorf("no key here has the role all, which a change of the policy of "+
			"%s needs: use another one with --with or --keys", s.name)
	}
	transaction := ledger.Transaction{Signer: s.name,
		Policy: &ledger.PolicyChange{Policy: changed}}
	if o.out != "" {
		return false, o.write(ctx, command, s, signing, transaction)
	}
	if needed := s.policy.Most(); len(signing) < needed {
		return false, fmt.Errorf("%d keys of %s have to sign a change of its policy, and %s here: "+
			"name the files of others with --with, or write the change to a file with --out and "+
			"have others sign it with `ledgerd tx submit FILE --sign`", needed, s.name,
			plural(len(signing), "key is"))
	}
	return true, o.post.postWith(ctx, command, s.nodes, signing, transaction, level)
}

// write writes the signed change to a file.
func (o *policyOptions) write(ctx context.Context, command *cobra.Command, s *policySession,
	signing []client.Key, transaction ledger.Transaction) error {
	if err := completeTransaction(ctx, s.nodes, &transaction); err != nil {
		return err
	}
	bundle, err := client.Sign(command.Context(), signing, transaction)
	if err != nil {
		return err
	}
	report := signedReport{ID: bundle.ID(0).String(), File: o.out, SignedBy: []string{},
		Missing: []string{}}
	for _, key := range signing {
		report.SignedBy = append(report.SignedBy, string(s.name)+" with "+key.Public().String())
	}
	if missing := s.policy.Most() - len(signing); missing > 0 {
		report.Missing = append(report.Missing, fmt.Sprintf("%d more of %s", missing, s.name))
	}
	return report.write(command, o.post.json, bundle)
}

// newOrgPolicyCommand returns the `ledgerd org policy` command.
func newOrgPolicyCommand() *cobra.Command {
	var options policyOptions
	var threshold int
	var keys, revoked, limits, unlimited, assets []string
	var anyAsset bool
	command := &cobra.Command{
		Use:   "policy NAME",
		Short: "Show or change which keys of an organisation sign what",
		Long: `Show which keys of an organisation sign what, or change it.

Without a flag that changes something, the command shows the policy:

  threshold   how many of the keys have to sign a transaction
  limits      how many have to sign if it takes more of an asset than an amount
  keys        the keys, and their roles: all; open (opens accounts only); post
              (takes from accounts and writes records only); read (signs nothing)
  assets      what others may send to its accounts, unless that is everything

A new organisation has the key of its registration, with the role all, and a
threshold of 1. A change is a transaction. As many keys with the role all have to
sign it as the strictest rule of the present policy asks for. It takes effect for
the transactions after it: one that was signed before and comes later has to
satisfy the new policy. So add a new key first, wait until nothing is under way
with the old one, and then revoke that.

The key in the keyring signs, and those in the files of --with. If others have
more keys, write the change to a file with --out. They add their signatures with
ledgerd tx submit FILE --sign.`,
		Example: `  ledgerd org policy acme

  # Two of three keys sign; a clerk's key alone pays up to 1000.00 EUR
  ledgerd org policy acme --set-key 4f…=all --set-key 9a…=all --threshold 2
  ledgerd org policy acme --set-key 77…=post --threshold 1 --limit EUR:1000.00=2 \
                      --with second.key

  # Refuse all assets of strangers but two
  ledgerd org policy acme --assets EUR,USD`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			flags := command.Flags()
			changes := slices.ContainsFunc([]string{"threshold", "set-key", "revoke", "limit",
				"no-limit", "assets", "any-asset"}, flags.Changed)
			if !changes {
				return showPolicy(command, &options, arguments[0])
			}
			s, ctx, done, err := options.connect(command, arguments[0])
			if err != nil {
				return err
			}
			defer done()
			policy := s.policy.Clone()
			if flags.Changed("threshold") {
				policy.Threshold = threshold
			}
			for _, text := range keys {
				if err := setKey(&policy, text); err != nil {
					return err
				}
			}
			for _, text := range revoked {
				if err := dropKey(&policy, s.name, text); err != nil {
					return err
				}
			}
			for _, text := range limits {
				if err := setLimit(ctx, newDecimals(s.nodes), &policy, text); err != nil {
					return err
				}
			}
			for _, asset := range unlimited {
				policy.Limits = slices.DeleteFunc(policy.Limits, func(l ledger.Limit) bool {
					return string(l.Asset) == asset
				})
			}
			if flags.Changed("assets") {
				policy.RefuseAssets, policy.Assets = true, nil
				for _, asset := range assets {
					policy.Assets = append(policy.Assets, ledger.AssetName(asset))
				}
			}
			if anyAsset {
				policy.RefuseAssets, policy.Assets = false, nil
			}
			_, err = options.change(ctx, command, s, policy)
			return err
		},
		ValidArgsFunction: organisationCompletion(&options.post.remote),
	}
	options.bind(command)
	flags := command.Flags()
	flags.IntVar(&threshold, "threshold", 1, "how many keys have to sign a transaction")
	flags.StringArrayVar(&keys, "set-key", nil, "a key, KEY=ROLE, to add or to give another role; "+
		"repeat it. KEY is 64 hex digits; the role is all, open, post or read")
	flags.StringArrayVar(&revoked, "revoke", nil, "a key to revoke, 64 hex digits; repeat it")
	flags.StringArrayVar(&limits, "limit", nil, "ASSET:AMOUNT=COUNT: as many keys have to sign a "+
		"transaction that takes more of the asset than the amount; repeat it")
	flags.StringArrayVar(&unlimited, "no-limit", nil, "remove the limits of this asset; repeat it")
	flags.StringSliceVar(&assets, "assets", nil, "what others may send to the organisation; it "+
		"refuses all other assets")
	flags.BoolVar(&anyAsset, "any-asset", false, "let others send any asset")
	command.MarkFlagsMutuallyExclusive("assets", "any-asset")
	return command
}

func showPolicy(command *cobra.Command, options *policyOptions, text string) error {
	name, err := parseOrganisation(text)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := options.post.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	policy, err := presentPolicy(ctx, nodes, name)
	if err != nil {
		return err
	}
	if options.post.json {
		return writeJSON(command.OutOrStdout(), policyReport{Organisation: string(name),
			Policy: policy, Needed: policy.Most()})
	}
	known, rows := newDecimals(nodes), table{}
	rows.add("organisation", string(name))
	rows.add("changes so far", fmt.Sprint(policy.Number))
	rows.add("threshold", fmt.Sprintf("%d of %s", policy.Threshold,
		plural(len(policy.Keys), "key")))
	for _, limit := range policy.Limits {
		rows.add("limit", fmt.Sprintf("above %s %s: %s",
			known.show(ctx, limit.Above.String(), string(limit.Asset)), limit.Asset,
			plural(limit.Signatures, "signature")))
	}
	rows.add("to change this", plural(policy.Most(), "signature")+" of keys with the role all")
	for _, key := range policy.Keys {
		rows.add("key", fmt.Sprintf("%s  %s", key.Key, key.Role))
	}
	if policy.RefuseAssets {
		rows.add("assets", assetWords(policy.Assets))
	}
	return rows.write(command.OutOrStdout())
}

// policyWords describes a policy in a few words.
func policyWords(p *ledger.Policy) string {
	words := []string{fmt.Sprintf("%d of %s sign", p.Threshold, plural(len(p.Keys), "key"))}
	for _, limit := range p.Limits {
		words = append(words, fmt.Sprintf("%d above %s %s", limit.Signatures, limit.Above,
			limit.Asset))
	}
	text := strings.Join(words, ", ")
	if p.RefuseAssets {
		text += "; others may send " + assetWords(p.Assets)
	}
	return text
}

// assetWords names the assets that an organisation accepts.
func assetWords(assets []ledger.AssetName) string {
	if len(assets) == 0 {
		return "nothing"
	}
	names := make([]string, len(assets))
	for i, asset := range assets {
		names[i] = string(asset)
	}
	return "only " + strings.Join(names, ", ")
}

// setKey adds the key of KEY=ROLE to a policy, or gives it another role.
func setKey(policy *ledger.Policy, text string) error {
	digits, word, _ := strings.Cut(text, "=")
	key, err := ledger.ParsePublicKey(digits)
	if err != nil {
		return usagef("--set-key %q: %w: write KEY=ROLE", text, err)
	}
	role := ledger.RoleAll
	if word != "" {
		if err := role.UnmarshalText([]byte(word)); err != nil {
			return usagef("--set-key %q: %w", text, err)
		}
	}
	for i := range policy.Keys {
		if policy.Keys[i].Key == key {
			policy.Keys[i].Role = role
			return nil
		}
	}
	policy.Keys = append(policy.Keys, ledger.PolicyKey{Key: key, Role: role})
	return nil
}

// dropKey removes a key from a policy.
func dropKey(policy *ledger.Policy, name ledger.OrganisationName, text string) error {
	key, err := ledger.ParsePublicKey(text)
	if err != nil {
		return usagef("key %q: %w", text, err)
	}
	before := len(policy.Keys)
	policy.Keys = slices.DeleteFunc(policy.Keys, func(k ledger.PolicyKey) bool {
		return k.Key == key
	})
	if len(policy.Keys) == before {
		return fmt.Errorf("%s is no key of %s: ledgerd keys list %s shows its keys", key, name,
			name)
	}
	if len(policy.Keys) == 0 {
		return fmt.Errorf("%s is the only key of %s: replace it with `ledgerd keys rotate %s`", key,
			name, name)
	}
	return nil
}

// setLimit adds the limit of ASSET:AMOUNT=COUNT to a policy, or changes it. The amount is written
// with the decimals of the asset.
func setLimit(ctx context.Context, known *decimals, policy *ledger.Policy, text string) error {
	bad := func(err error) error {
		return usagef("--limit %q: %w: write ASSET:AMOUNT=COUNT, for example EUR:1000.00=2 if "+
			"EUR has two decimals", text, err)
	}
	rest, count, _ := strings.Cut(text, "=")
	name, sum, _ := strings.Cut(rest, ":")
	asset, err := parseAsset(name)
	if err != nil {
		return bad(err)
	}
	above, err := known.parse(ctx, sum, asset)
	if err != nil {
		return bad(err)
	}
	signatures, err := strconv.Atoi(count)
	if err != nil {
		return bad(err)
	}
	limit := ledger.Limit{Asset: asset, Above: above, Signatures: signatures}
	for i := range policy.Limits {
		if each := &policy.Limits[i]; each.Asset == asset && each.Above == above {
			*each = limit
			return nil
		}
	}
	policy.Limits = append(policy.Limits, limit)
	return nil
}

// newKeysRotateCommand returns the `ledgerd keys rotate` command.
func newKeysRotateCommand() *cobra.Command {
	var options policyOptions
	var newFile string
	command := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace the keyring's key of an organisation by a new one",
		Long: `Replace the keyring's key of an organisation by a new one, in the ledger and in the
keyring. The new key has the role of the old one.

The command makes the new key, in NAME+next.key in the keyring, and submits a
change of the organisation's policy that the old key signs. Once the ledger has
it, NAME.key is the new key, and the old one is in NAME+old.key. If the command
is interrupted, run it again: it goes on.

The new key gets a passphrase as that of keys create does: asked for, or from
--new-passphrase-file, or else from --passphrase-file; --plain makes it without
one. A key that an external signer has is replaced by one that is made outside,
too: name that with ledgerd keys create NAME --next first. The same moves a key
from a file to an external signer.

The old key stops at the change's place in the chain. Transactions that it has
signed and that come later are refused: sign them again. With a threshold above
1 other keys sign, too: see ledgerd org policy --help. After a change that was
written with --out has been submitted, run the command again.`,
		Example: `  ledgerd keys rotate acme
  ledgerd keys rotate acme --with second.key --json

  # From one key on a token to another
  ledgerd keys create acme --next --pkcs11-module /usr/lib/softhsm/libsofthsm2.so \
                           --token-label ledger --key-label acme-2
  ledgerd keys rotate acme`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			s, _, done, err := options.connect(command, arguments[0])
			if err != nil {
				return err
			}
			defer done()
			old, err := s.ring.Inspect(s.name)
			if err != nil {
				return err
			}
			passphrases := options.post.keys.passphrases
			if newFile != "" {
				passphrases.files = []string{newFile}
			}
			s.ring.Passphrases = &passphrases
			next, err := s.ring.Next(s.name)
			if err != nil {
				return err
			}
			if next.Public() == old.Public {
				return fmt.Errorf("%s has the present key of %s: move it away, and run this again",
					s.ring.NextFile(s.name), s.name)
			}
			// The time-out is for the nodes, not for the person that types a passphrase.
			ctx, cancel := options.post.remote.bound(command.Context())
			defer cancel()
			has := func(key ledger.PublicKey) int {
				return slices.IndexFunc(s.policy.Keys, func(k ledger.PolicyKey) bool {
					return k.Key == key
				})
			}
			place := has(old.Public)
			if place < 0 && has(next.Public()) >= 0 {
				// An earlier run submitted the change.
				return finishRotation(command, &options, s, next)
			}
			if place < 0 {
				return fmt.Errorf("the keyring's key %s is no key of %s: ledgerd keys list %s "+
					"shows its keys", old.Public, s.name, s.name)
			}
			policy := s.policy.Clone()
			policy.Keys[place].Key = next.Public()
			if submitted, err := options.change(ctx, command, s, policy); err != nil || !submitted {
				return err
			}
			return finishRotation(command, &options, s, next)
		},
		ValidArgsFunction: keyCompletion(&options.post.keys),
	}
	options.bind(command)
	options.post.keys.passphrases.bindNew()
	command.Flags().StringVar(&newFile, newPassphraseFlag, "", "file with the passphrase of the "+
		"new key (default that of --passphrase-file, or asked for on the terminal)")
	command.MarkFlagsMutuallyExclusive(plainFlag, newPassphraseFlag)
	return command
}

func finishRotation(command *cobra.Command, options *policyOptions, s *policySession,
	next client.Key) error {
	if err := s.ring.Rotate(s.name); err != nil {
		return err
	}
	if options.post.json {
		return nil
	}
	_, err := fmt.Fprintf(command.OutOrStdout(), "%s signs with %s now; the old key is in %s\n",
		s.name, next.Public(), s.ring.OldFile(s.name))
	return err
}

// newKeysRevokeCommand returns the `ledgerd keys revoke` command.
func newKeysRevokeCommand() *cobra.Command {
	var options policyOptions
	command := &cobra.Command{
		Use:   "revoke NAME KEY",
		Short: "Revoke a key of an organisation",
		Long: `Revoke a key of an organisation: the ledger accepts nothing more that it signs.

KEY is the public key, 64 hex digits; ledgerd keys list NAME shows them. The last
keys that the organisation's threshold needs cannot be revoked: add others first
(ledgerd org policy NAME --set-key KEY=ROLE), or replace the key (ledgerd keys
rotate). As many keys have to sign as for any change of the policy: see ledgerd
org policy --help. A key may sign its own revocation.`,
		Example: `  ledgerd keys list acme
  ledgerd keys revoke acme 4f3c…`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			s, ctx, done, err := options.connect(command, arguments[0])
			if err != nil {
				return err
			}
			defer done()
			policy := s.policy.Clone()
			if err := dropKey(&policy, s.name, arguments[1]); err != nil {
				return err
			}
			_, err = options.change(ctx, command, s, policy)
			return err
		},
		ValidArgsFunction: keyCompletion(&options.post.keys),
	}
	options.bind(command)
	return command
}

// ledgerKeyReport is an organisation's key, as the ledger knows it.
type ledgerKeyReport struct {
	Key     string `json:"public_key"`
	Role    string `json:"role"`
	Present bool   `json:"in_keyring"`
}

// listOrganisationKeys prints an organisation's keys, as the ledger knows them.
func listOrganisationKeys(command *cobra.Command, remote *remoteOptions, ring *client.Keyring,
	text string, asJSON bool) error {
	name, err := parseOrganisation(text)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	policy, err := presentPolicy(ctx, nodes, name)
	if err != nil {
		return err
	}
	own, err := ring.Inspect(name)
	if err != nil && !errors.Is(err, client.ErrNoKey) {
		return err
	}
	reports := []ledgerKeyReport{}
	rows := table{header: []string{"PUBLIC KEY", "ROLE", "IN THE KEYRING"}}
	for _, key := range policy.Keys {
		report := ledgerKeyReport{Key: key.Key.String(), Role: key.Role.String(),
			Present: err == nil && own.Public == key.Key}
		reports = append(reports, report)
		here := ""
		if report.Present {
			here = "yes"
		}
		rows.add(report.Key, report.Role, here)
	}
	if asJSON {
		return writeJSON(command.OutOrStdout(), map[string]any{"organisation": name,
			"threshold": policy.Threshold, "keys": reports})
	}
	return rows.write(command.OutOrStdout())
}
