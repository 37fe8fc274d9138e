package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

// newClusterQuotasCommand returns the `ledgerd cluster quotas` command.
func newClusterQuotasCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "quotas",
		Short: "Show and change what each organisation may keep",
		Long: `Show and change what each organisation may keep in a ledger, and so in the memory of
every node:

  streams   nonce streams; most clients use one each
  accounts  open accounts
  assets    assets in its accounts; one asset in two accounts counts twice
  records   records
  pending   transactions that it signed first and that wait for other shards

A transaction that needs more fails and says which quota is used up. In a ledger
of several shards the quotas hold in each shard by itself. The genesis has the
first quotas; operators change them. ledgerd org show shows what an organisation
keeps.`,
		Example: `  ledgerd cluster quotas show
  ledgerd cluster quotas set accounts=5000 records=none --operator net/operator.key`,
	}, newClusterQuotasShowCommand(), newClusterQuotasSetCommand())
}

// newClusterQuotasShowCommand returns the `ledgerd cluster quotas show` command.
func newClusterQuotasShowCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "show",
		Short: "Show what each organisation may keep",
		Long:  `Show what each organisation may keep. With --json, 0 stands for no bound.`,
		Example: `  ledgerd cluster quotas show --via http://127.0.0.1:26600
  ledgerd cluster quotas show --json | jq .quotas.accounts`,
	}
	return showCharter(command, func(charter *ledger.Charter) (any, table) {
		rows := table{}
		for i, number := range charter.Quotas.Numbers() {
			rows.add(ledger.QuotaNames[i], quotaText(*number))
		}
		return map[string]any{"number": charter.Number,
			"quotas": quotaNumbers(charter.Quotas)}, rows
	})
}

// newClusterQuotasSetCommand returns the `ledgerd cluster quotas set` command.
func newClusterQuotasSetCommand() *cobra.Command {
	var options charterOptions
	command := &cobra.Command{
		Use:   "set NAME=NUMBER... --operator FILE",
		Short: "Change what each organisation may keep",
		Long: `Change what each organisation may keep. NAME is streams, accounts, assets, records
or pending; NUMBER is a number, or none for no bound. Quotas that are not named
stay as they are. Lower quotas take nothing away: they refuse what is more.

The operators sign this as they sign a change of themselves, with --operator or
one after another in a file (--out): see ledgerd cluster operators set.`,
		Example: `  ledgerd cluster quotas set streams=1000 accounts=5000 --operator net/operator.key
  ledgerd cluster quotas set records=none --operator a.key --operator b.key`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.run(command, func(charter *ledger.Charter) error {
				return setQuotas(&charter.Quotas, arguments)
			}, nil)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			var names []string
			for _, name := range ledger.QuotaNames {
				names = append(names, name+"=")
			}
			return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		},
	}
	options.bind(command)
	return command
}

const noQuota = "none"

// setQuotas sets the quotas of texts like accounts=5000 and records=none.
func setQuotas(quotas *ledger.Quotas, texts []string) error {
	for _, text := range texts {
		name, digits, _ := strings.Cut(text, "=")
		at := slices.Index(ledger.QuotaNames[:], name)
		if at < 0 {
			return usagef("%q: write NAME=NUMBER, where NAME is one of %s", text,
				strings.Join(ledger.QuotaNames[:], ", "))
		}
		number, err := strconv.ParseUint(digits, 10, 64)
		switch {
		case digits == noQuota:
			number = 0
		case err != nil || number == 0 || number > ledger.MaxQuota:
			return usagef("%q: the number is 1 to %d, or %s", text, uint64(ledger.MaxQuota),
				noQuota)
		}
		*quotas.Numbers()[at] = number
	}
	return nil
}

func quotaText(number uint64) string {
	if number == 0 {
		return noQuota
	}
	return fmt.Sprint(number)
}

// quotaNumbers returns quotas, or what an organisation keeps, as --json prints it.
func quotaNumbers(quotas ledger.Quotas) map[string]uint64 {
	numbers := make(map[string]uint64)
	for i, number := range quotas.Numbers() {
		numbers[ledger.QuotaNames[i]] = *number
	}
	return numbers
}

// quotaWords describes quotas in a few words.
func quotaWords(numbers map[string]uint64) string {
	var words []string
	for _, name := range ledger.QuotaNames {
		if numbers[name] > 0 {
			words = append(words, fmt.Sprintf("%d %s", numbers[name], name))
		}
	}
	if len(words) == 0 {
		return noQuota
	}
	return strings.Join(words, ", ")
}
