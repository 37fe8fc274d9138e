package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
)

// far begins a read at a cut, and does more than little work.
func far(ctx context.Context, s *Service, caller string) (done func(), err error) {
	effort, done := s.effort(caller)
	return done, effort.Far(ctx)
}

// One address has few reads far back at once, and all together have few. One more waits until
// another ends, or its own time does.
func TestReadsFarBackAtOnce(t *testing.T) {
	t.Parallel()
	s := NewService(nil, Options{MaxFarReadsPerAddress: 2})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(caller, why string) {
		t.Helper()
		done, err := far(ended, s, caller)
		defer done()
		coded := (*connect.Error)(nil)
		if connect.CodeOf(err) != connect.CodeResourceExhausted ||
			!strings.Contains(err.Error(), why) || !errors.As(err, &coded) ||
			coded.Meta().Get(HeaderRetry) != "true" {
			t.Errorf("%s: %v, want %q", caller, err, why)
		}
	}
	allowed := func(caller string) func() {
		t.Helper()
		done, err := far(t.Context(), s, caller)
		if err != nil {
			t.Fatalf("%s: %v", caller, err)
		}
		return done
	}
	first := allowed("10.0.0.1:1000")
	allowed("10.0.0.1:2000")
	refused("10.0.0.1:3000", "from this address")
	waits := make(chan func())
	go func() {
		done, err := far(context.Background(), s, "10.0.0.1:4000")
		if err != nil {
			t.Error(err)
		}
		waits <- done
	}()
	first()
	last := <-waits // it waited until the first one ended
	refused("10.0.0.1:5000", "from this address")
	for _, caller := range []string{"10.0.0.2:1", "10.0.0.2:2", "10.0.0.3:1", "10.0.0.3:2",
		"10.0.0.4:1", "10.0.0.4:2"} {
		allowed(caller)
	}
	refused("10.0.0.5:1", "this node is busy")
	last()
	allowed("10.0.0.5:1")()
	if of := s.limits.addresses["10.0.0.5"]; of.farReads != 0 || len(of.far) != 0 ||
		len(s.limits.far) != 7 {
		t.Errorf("%d reads of the address, %d places of %d are taken", of.farReads, len(of.far),
			len(s.limits.far))
	}
}

// still is a node whose chain does not grow.
type still struct {
	Backend
	opened *store.Store
}

func (s still) Store() *store.Store { return s.opened }

func (s still) Heights() (report.Heights, <-chan struct{}) { return report.Heights{}, nil }

// A look-up that takes too much work is no damage, and asking again does not help.
func TestFarBackIsNoDamage(t *testing.T) {
	t.Parallel()
	opened, err := store.Open(t.TempDir(), ledgertest.Genesis(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	s := NewService(still{opened: opened}, Options{})
	err = s.onceThere(t.Context(), "finding a place", func(ledger.Height) error {
		return fmt.Errorf("%w: too much", store.ErrFarBack)
	})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition ||
		!strings.Contains(err.Error(), "ask for a later cut") {
		t.Error(err)
	}
}
