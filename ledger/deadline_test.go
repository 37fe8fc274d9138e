package ledger_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestEncodingOfDeadlines: a transaction without a deadline is encoded as before, and each deadline
// has one encoding.
func TestEncodingOfDeadlines(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	transfer := client.Transfer("acme:issuer", "acme:a", 5)
	transfer.Note = []byte("a note")
	plain, err := transfer.EncodeBody()
	if err != nil || plain[0] != 1 {
		t.Fatalf("%x: %v", plain, err)
	}
	for _, deadline := range []ledger.Milliseconds{1, 127, 1 << 41, 1<<63 - 1} {
		transfer.Deadline = deadline
		body, err := transfer.EncodeBody()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := ledger.DecodeBody(body)
		if err != nil || !reflect.DeepEqual(decoded, &transfer) {
			t.Errorf("deadline %d: %+v: %v", deadline, decoded, err)
		}
	}
	transfer.Deadline = -1
	if _, err := transfer.EncodeBody(); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("a deadline before 1970: %v", err)
	}
	transfer.Deadline = 1
	body, _ := transfer.EncodeBody()
	place := 1 // of the deadline, which takes one byte
	for !bytes.Equal(body[place+1:], plain[place:]) {
		place++
	}
	for name, deadline := range map[string][]byte{"none": {0}, "too long": {0x81, 0},
		"above the largest": binary.AppendUvarint(nil, 1<<63)} {
		wrong := slices.Concat(body[:place], deadline, body[place+1:])
		if _, err := ledger.DecodeBody(wrong); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeadlinesStandWhereTheyMay: changes of the members, the charter and policies have none, nor
// do packed transfers and the transactions of older chains.
func TestDeadlinesStandWhereTheyMay(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	operator, client := ledgertest.NewOperator(genesis), ledgertest.NewClient(genesis, "acme")
	charter := genesis.Charter()
	charter.Number = 1
	for name, transaction := range map[string]ledger.Transaction{
		"charter": operator.ChangeCharter(charter),
		"policy":  client.ChangePolicy(ledgertest.Policy(1, "acme")),
		"member":  *operator.Leave(1).Transaction(0),
	} {
		if _, err := transaction.EncodeBody(); err != nil {
			t.Fatal(err)
		}
		transaction.Deadline = 1
		if _, err := transaction.EncodeBody(); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	transfer := client.Transfer("acme:issuer", "acme:a", 5)
	transfer.Deadline = 1
	if _, err := ledger.PackBundle(transfer); !errors.Is(err, ledger.ErrNotPlain) {
		t.Errorf("packed: %v", err)
	}
	register := client.Register("issuer", "a")
	register.Deadline = 1
	bundle := client.Bundle(register)
	for version, fits := range map[int]bool{1: false, 3: false, ledger.DeadlineVersion: true} {
		known := newAuthority(genesis)
		known.charter.Version = version
		err := ledger.VerifyBundle(bundle, genesis, genesis.Hash(), known)
		if fits != (err == nil) || !fits && !errors.Is(err, ledger.ErrInvalidTransaction) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
