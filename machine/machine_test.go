package machine

import (
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/order"
)

func TestRoundOf(t *testing.T) {
	t.Parallel()
	messages := []order.Message{{Origin: 0, Payload: []byte("b")}, {Origin: 2},
		{Origin: 3, Payload: []byte{}}, {Origin: 5, Payload: []byte("a")}}
	got := RoundOf(order.Delivery{Epoch: 3, Round: 7, Messages: messages,
		Removed: []order.ServerID{1}})
	clear(messages) // an engine reuses the list
	want := Round{Epoch: 3, Number: 7, Payloads: [][]byte{[]byte("b"), []byte("a")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if empty := RoundOf(order.Delivery{Epoch: 1, Round: 1}); len(empty.Payloads) != 0 {
		t.Errorf("a round without messages has the payloads %q", empty.Payloads)
	}
}

func TestLedgerAsStateMachine(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	application := &Ledger{Folder: t.TempDir(), Genesis: genesis,
		Options: store.Options{MemTableBytes: 1 << 20, ReserveBytes: 1}}
	if _, _, err := application.Apply(Round{}); !errors.Is(err, ErrNotOpen) {
		t.Fatalf("apply before open: %v", err)
	}
	client := ledgertest.NewClient(genesis, "acme")
	rounds := [][]byte{
		ledgertest.Batch(1, client.Bundle(client.Register("issuer", "a"))),
		ledgertest.Batch(2),
		ledgertest.Batch(3, client.Bundle(client.Transfer("acme:issuer", "acme:a", 5))),
	}
	for i, want := range []Height{1, 1, 2} {
		before, err := application.Open()
		if err != nil {
			t.Fatal(err)
		}
		height, block, err := application.Apply(Round{Epoch: 1, Number: uint64(i + 1),
			Payloads: rounds[i : i+1]})
		if (block != nil) != (i != 1) || block != nil && Height(block.Header.Height) != want {
			t.Fatalf("round %d: block %+v", i+1, block)
		}
		if err != nil || height != want || before > height {
			t.Fatalf("round %d: height %d after %d, %v", i+1, height, before, err)
		}
		if durable, err := application.Sync(); err != nil || durable != want {
			t.Fatalf("durable %d: %v", durable, err)
		}
		if err := application.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := application.Open(); err != nil {
		t.Fatal(err)
	}
	err := application.Lookup(func(view *store.Store) error {
		if account, err := view.Account("acme:a"); err != nil ||
			account.Balance("unit").String() != "5" {
			t.Errorf("account %+v: %v", account, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := application.Close(); err != nil {
		t.Fatal(err)
	}
}
