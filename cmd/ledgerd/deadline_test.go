package main

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

func TestParseDeadline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := ledger.Milliseconds(now.UnixMilli())
	for text, want := range map[string]ledger.Milliseconds{
		"":                          0,
		"90m":                       at + 90*60_000,
		"1500ms":                    at + 1500,
		"2026-01-31T12:00:01Z":      at + 1000,
		"2026-01-31T14:00:01+01:00": at + 3601_000,
	} {
		if got, err := parseDeadline(text, now); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"tomorrow", "0s", "-5m", "2026-01-31T12:00:00Z", "2026-01-31",
		"7"} {
		if got, err := parseDeadline(text, now); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
