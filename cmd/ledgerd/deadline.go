package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

// bindDeadline adds the flag for a transaction's deadline.
func bindDeadline(command *cobra.Command, deadline *string) {
	command.Flags().StringVar(deadline, "deadline", "", "when blocks stop taking the transaction: "+
		"a time such as 2026-01-31T12:00:00Z, or how long from now, such as 90m (default 24h if "+
		"it may cross shards, else none)")
}

// parseDeadline parses a deadline as users write it. "" means none.
func parseDeadline(text string, now time.Time) (ledger.Milliseconds, error) {
	if text == "" {
		return 0, nil
	}
	deadline, err := time.Parse(time.RFC3339, text)
	if length, failure := time.ParseDuration(text); failure == nil {
		deadline, err = now.Add(length), nil
	}
	if err != nil || !deadline.After(now) {
		return 0, usagef("deadline %q: name a time to come, such as 2026-01-31T12:00:00Z, or how "+
			"long from now, such as 90m", text)
	}
	return ledger.Milliseconds(deadline.UnixMilli()), nil
}
