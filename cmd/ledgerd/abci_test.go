package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/client/abci"
)

// What the operator of an adapter reads, with and without --quiet.
func TestABCIProgress(t *testing.T) {
	t.Parallel()
	for _, each := range []struct {
		notice      abci.Notice
		want, quiet string
	}{
		{abci.Notice{Event: "begin", Height: 5, Was: 5}, "the application is at height 5\n", ""},
		{abci.Notice{Event: "begin", Height: 5, Was: 9}, "the application is at height 5; it " +
			"was at 9, and executes the blocks after 5 again\n", ""},
		{abci.Notice{Event: "waiting", Height: 6, Call: "FinalizeBlock", Seconds: 20.1},
			"waiting for the application: no answer to FinalizeBlock of block 6 for 20s\n",
			"waiting for"},
		{abci.Notice{Event: "answered", Height: 6, Call: "Commit", Seconds: 83},
			"the application answered Commit of block 6 after 1m23s\n", "the application answered"},
		{abci.Notice{Event: "retry", Height: 5, Error: "it broke\x1b off"},
			"tries again after height 5: it broke", "tries again"},
		{abci.Notice{Event: "unkept", Height: 5, Error: "no space left on device"},
			"the adapter's file cannot be written, so it is behind the application, which goes " +
				"on: no space left on device\n", "no space"},
		{abci.Notice{Event: "block", Height: 6, Transactions: 2, LeftOut: 1, AppHash: "AB"},
			"executed block 6, 2 transactions; application hash AB; left out 1 that", ""},
	} {
		for _, quiet := range []bool{false, true} {
			var out, errs bytes.Buffer
			told := &abciProgress{out: &out, errs: &errs, quiet: quiet}
			told.take(each.notice)
			want := each.want
			if quiet {
				want = each.quiet
			}
			if got := errs.String(); !strings.Contains(got, want) || out.Len() > 0 ||
				(want == "") != (got == "") || strings.Contains(got, "\x1b") {
				t.Errorf("%+v, quiet %v: %q", each.notice, quiet, got)
			}
		}
	}
}
