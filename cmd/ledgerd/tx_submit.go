package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// newTxSubmitCommand returns the `ledgerd tx submit` command.
func newTxSubmitCommand() *cobra.Command {
	var options postOptions
	var sign bool
	var operators []string
	command := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a transaction that was signed before",
		Long: `Submit a transaction that was signed before, with ledgerd tx post --out.

The file (- is the standard input) has the transactions and their signatures, in
hex or as bytes. Submitting the same file again, to any node, is safe: it takes
effect once, and the answer is the same.

With --sign, missing signatures are added first, with the keys in the keyring. If
some are still missing after that, the command rewrites the file for the next
signer and submits nothing. If an organisation's policy asks for more keys, the
node says so, and the file has the signatures so far.`,
		Example: `  ledgerd tx post --posting acme:cash=-5 --posting acme:vault=5 --out payment.tx
  ledgerd tx submit payment.tx --wait ordered

  # Where the key of the other organisation is
  ledgerd tx submit exchange.tx --sign`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			level, err := parseLevel(options.wait)
			if err != nil {
				return err
			}
			content, err := readFile(command, arguments[0])
			if err != nil {
				return err
			}
			bundle, err := parseBundle(content)
			if err != nil {
				return fmt.Errorf("%s: %w", arguments[0], err)
			}
			if len(operators) > 0 {
				keys, err := options.keys.passphrases.operators(operators)
				if err == nil {
					err = signAsOperators(command.Context(), bundle, keys)
				}
				if err == nil && arguments[0] != "-" {
					err = writeBundle(arguments[0], bundle)
				}
				if err != nil {
					return err
				}
			}
			if sign {
				if arguments[0] == "-" {
					return usagef("--sign needs a file that it can rewrite: name one")
				}
				complete, err := options.addSignatures(command, bundle, arguments[0])
				if err != nil || !complete {
					return err
				}
			}
			nodes, ctx, done, err := options.remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			if options.dry {
				outcomes, err := nodes.DryRun(ctx, bundle)
				if err != nil {
					return withWriters(err)
				}
				return writeDryRuns(command.OutOrStdout(), options.json, outcomes)
			}
			statuses, err := nodes.Submit(ctx, bundle, level)
			if err != nil && !slices.ContainsFunc(statuses,
				func(status *ledgerdv1.TransactionStatus) bool {
					return len(status.GetWaitsFor()) > 0
				}) {
				return withWriters(err)
			}
			reports := make([]statusReport, len(statuses))
			for i, status := range statuses {
				reports[i] = reportStatus(status)
			}
			if len(reports) == 1 {
				if t := bundle.Transaction(0); t.Details != nil {
					reports[0].nameKeyHolder(ctx, nodes, t.Signer, t.Details.Key)
				}
				return errors.Join(writeStatus(command.OutOrStdout(), options.json, reports[0]),
					err)
			}
			return errors.Join(writeStatuses(command, options.json, reports), err)
		},
	}
	options.bind(command)
	bindDryRun(command, &options.dry)
	options.remote.bindQueue(command)
	command.Flags().StringSliceVar(&operators, "operator", nil, "file with an operator's "+
		"key that signs, too; several with commas or repeated")
	command.Flags().BoolVar(&sign, "sign", false,
		"add the signatures that are missing, with the keys of the keyring")
	return command
}

// writeStatuses prints the states of a bundle's transactions. It fails if one of them failed.
func writeStatuses(command *cobra.Command, asJSON bool, reports []statusReport) error {
	var failure error
	rows := table{header: []string{"TRANSACTION", "STATE", "REASON"}}
	for _, report := range reports {
		if failure == nil {
			failure = report.failure()
		}
		rows.add(report.ID, report.place(), report.Reason)
	}
	if asJSON {
		return errors.Join(writeJSON(command.OutOrStdout(),
			map[string]any{"transactions": reports}), failure)
	}
	return errors.Join(rows.write(command.OutOrStdout()), failure)
}

// writeBundle writes a signed bundle to a file, in hex.
func writeBundle(path string, bundle *ledger.Bundle) error {
	return writeWhole(path, []byte(hex.EncodeToString(bundle.Encode())+"\n"))
}

// parseBundle parses a signed bundle, in hex or as bytes.
func parseBundle(content []byte) (*ledger.Bundle, error) {
	encoded, err := hex.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil {
		encoded = content
	}
	bundle, err := ledger.DecodeBundle(encoded)
	if err != nil {
		return nil, fmt.Errorf("not a signed transaction: %w: make one with `ledgerd tx post "+
			"--out FILE`", err)
	}
	return bundle, nil
}

// addSignatures signs a bundle with the keys in the keyring. It reports whether all signatures are
// there now. If not, it rewrites the file.
func (o *postOptions) addSignatures(command *cobra.Command, bundle *ledger.Bundle,
	path string) (complete bool, err error) {
	ring, err := o.keys.open()
	if err != nil {
		return false, err
	}
	var signers []ledger.OrganisationName
	for i := range bundle.Len() {
		for _, organisation := range signersOf(bundle.Transaction(i)) {
			if !slices.Contains(signers, organisation) {
				signers = append(signers, organisation)
			}
		}
	}
	before := len(bundle.Signatures())
	report, err := signWithKeyring(command.Context(), bundle, ring, signers)
	if err != nil {
		return false, err
	}
	if len(report.Missing) == 0 && len(bundle.Signatures()) > before {
		// Keep them: an organisation may need more signatures than the command knows of.
		err := writeBundle(path, bundle)
		return err == nil, err
	}
	if len(report.Missing) == 0 {
		return true, nil
	}
	if len(bundle.Signatures()) == before {
		return false,
			fmt.Errorf("the keyring %s has none of the missing keys: those of %s",
				ring.Folder(), strings.Join(report.Missing, ", "))
	}
	report.File = path
	return false, report.write(command, o.json, bundle)
}
