package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/apitest"
)

// TestSchedules: schedules that are placed, shown and cancelled from the command line, and what is
// refused.
func TestSchedules(t *testing.T) {
	t.Parallel()
	genesis := *ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	genesis.Time = ledger.Milliseconds(time.Now().UnixMilli())
	s := newShellOf(t, 1, apitest.Options{Genesis: genesis})
	for _, name := range []string{"acme", "shop"} {
		s.must("keys create " + name + " --plain %k")
		s.must("org add " + name + " %n %k")
		s.must(fmt.Sprintf("account open %s:cash %%n %%k", name))
	}
	id := fmt.Sprint(s.object("schedule place acme:cash shop:cash 90 --first 24h --count 12 " +
		"--every 2weeks %n %k")["id"])
	shown := s.object("schedule show " + id + " %n")
	if shown["period"] != "weeks" || shown["occurrences"] != 12.0 || shown["issued"] != 0.0 {
		t.Error(shown)
	}
	for flags, want := range map[string]int{"": 1, "--organisation acme": 1,
		"--organisation shop": 0} {
		got := s.object("schedule list " + flags + " %n")["schedules"].([]any)
		if len(got) != want {
			t.Errorf("%q lists %d schedules, want %d", flags, len(got), want)
		}
	}
	if text := s.must("tx status " + id + " %n"); !strings.Contains(text, "every 2 weeks") {
		t.Error(text)
	}
	every := "schedule place acme:cash shop:cash 1 --first 1h --every "
	for line, want := range map[string]string{
		"schedule place acme:cash shop:cash 1":                      "--first",
		"schedule place acme:cash shop:cash 1 --first 1h --count 2": "need --every",
		every + "1day":              "when the schedule",
		every + "1year":             "or months",
		every + "1day --count 9999": "4096",
		"schedule show xyz":         "the id of a schedule",
		"schedule show " + strings.Repeat("ab", ledger.HashSize): "has no occurrences to come",
	} {
		if strings.Contains(line, "place") {
			line += " %k"
		}
		if got := s.run(line + " %n"); got.status == exitDone ||
			!strings.Contains(got.out+got.errs, want) {
			t.Errorf("%s: %d, %s%s", line, got.status, got.out, got.errs)
		}
	}
	s.must("schedule cancel " + id + " %n %k")
	if got := s.run("schedule cancel " + id + " %n %k"); got.status == exitDone {
		t.Error(got)
	}
}
