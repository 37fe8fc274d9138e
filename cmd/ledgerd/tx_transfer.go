package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

// newTxTransferCommand returns the `ledgerd tx transfer` command.
func newTxTransferCommand() *cobra.Command {
	var options postOptions
	var details detailOptions
	var from, to, amount, asset, note, deadline string
	command := &cobra.Command{
		Use:   "transfer FROM TO AMOUNT [ASSET]",
		Short: "Move an amount from one account to another",
		Long: `Move an amount from one account to another.

Accounts are written ORGANISATION:NAME. The organisation of the account that
gives signs, with its key in the keyring. The amount is written with all decimals
of the asset (ledgerd asset show EUR), 100.00 and not 100 if these are two; an asset
that is not registered has none. Nothing is rounded. Without an asset it is "unit".
If the balance of an account would fall below zero, the transfer fails, unless the
account is an issuer
(ledgerd account open --issuer).

The command answers when the transfer is on the disks of a majority of the
nodes, or earlier with --wait. If it is interrupted before, ask ledgerd tx status
for the outcome; running it again makes a second transfer.

A transfer that crosses shards has a deadline. If one of its shards has not
executed it by then, it takes effect nowhere, and what it set aside is free again.
While one of its shards is down or full, the nodes refuse it, and say which. With
--queue it waits for that shard.`,
		Example: `  ledgerd tx transfer acme:mint acme:cash 100
  ledgerd tx transfer acme:cash globex:cash 12.50 EUR --note "invoice 7"

  # The same with flags, waiting only for its place in the order
  ledgerd tx transfer --from acme:cash --to globex:cash --amount 25.00 --asset EUR \
                      --wait ordered`,
		Args: cobra.MaximumNArgs(4),
		RunE: func(command *cobra.Command, arguments []string) error {
			for i, value := range arguments {
				flag := []string{"from", "to", "amount", "asset"}[i]
				if command.Flags().Changed(flag) {
					return usagef("%q is given, but --%s says it as well: leave one out", value,
						flag)
				}
				*[]*string{&from, &to, &amount, &asset}[i] = value
			}
			if from == "" || to == "" || amount == "" {
				return usagef("a transfer needs two accounts and an amount, for example " +
					"`ledgerd tx transfer acme:mint acme:cash 100`")
			}
			transaction, name, err := transfer(from, to, asset)
			if err != nil {
				return err
			}
			if err := options.amount(command, &transaction, amount, name); err != nil {
				return err
			}
			transaction.Note = []byte(note)
			if transaction.Deadline, err = parseDeadline(deadline, time.Now()); err != nil {
				return err
			}
			if err := details.details(&transaction, time.Now()); err != nil {
				return err
			}
			return options.post(command, signersOf(&transaction), transaction)
		},
		ValidArgsFunction: accountCompletion(&options.remote, 2),
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", "", "account that gives")
	flags.StringVar(&to, "to", "", "account that takes")
	flags.StringVar(&amount, "amount", "", "how much, above zero, with the decimals of the asset")
	flags.StringVar(&asset, "asset", "", `asset (default "unit")`)
	flags.StringVar(&note, "note", "", "a note, kept in the transaction")
	bindDeadline(command, &deadline)
	details.bind(command)
	options.bind(command)
	bindDryRun(command, &options.dry)
	options.remote.bindQueue(command)
	completeFlag(command, "from", accountCompletion(&options.remote, 1))
	completeFlag(command, "to", accountCompletion(&options.remote, 1))
	return command
}

// transfer makes the transaction from text, without its amount.
func transfer(from, to, asset string) (ledger.Transaction, ledger.AssetName, error) {
	giver, err := parseAccount(from)
	if err != nil {
		return ledger.Transaction{}, "", err
	}
	taker, err := parseAccount(to)
	if err != nil {
		return ledger.Transaction{}, "", err
	}
	if giver == taker {
		return ledger.Transaction{}, "", usagef("%s cannot pay itself: name two accounts", from)
	}
	name, err := parseAsset(asset)
	if err != nil {
		return ledger.Transaction{}, "", err
	}
	return ledger.Transaction{Postings: []ledger.Posting{
		{Account: giver, Asset: name}, {Account: taker, Asset: name},
	}}, name, nil
}

// amount sets the amount of a transfer, written with the decimals of the asset, for which it asks a
// node unless the asset has none for certain.
func (o *postOptions) amount(command *cobra.Command, transfer *ledger.Transaction, text string,
	name ledger.AssetName) error {
	sum, err := o.parse(command, text, name)
	if err != nil {
		return err
	}
	return setAmount(transfer, sum, text)
}

// parse parses an amount as amount does.
func (o *postOptions) parse(command *cobra.Command, text string, name ledger.AssetName) (
	ledger.Amount, error) {
	if name == ledger.DefaultAsset {
		return parseAmount(text)
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return ledger.Amount{}, err
	}
	defer done()
	return newDecimals(nodes).parse(ctx, text, name)
}

// setAmount sets the amount of both postings of a transfer.
func setAmount(transfer *ledger.Transaction, sum ledger.Amount, text string) error {
	negative, err := sum.Neg()
	switch {
	case err != nil:
		return usagef("amount %s: %w", text, err)
	case sum.Sign() <= 0:
		return usagef("amount %s: it has to be above zero; to move it back, exchange the accounts",
			text)
	}
	transfer.Postings[0].Amount, transfer.Postings[1].Amount = negative, sum
	return nil
}
