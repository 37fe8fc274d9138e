package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func TestAdmitForms(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	now := genesis.Membership()
	change := func(edit func(*ledger.Transaction)) ledger.Transaction {
		transaction := *ledgertest.Admit("node-0", genesis, now, 1, ledgertest.Disk(1),
			0).Transaction(0)
		copied := *transaction.Change
		transaction.Change = &copied
		edit(&transaction)
		return transaction
	}
	for name, transaction := range map[string]ledger.Transaction{
		"no disk": change(func(t *ledger.Transaction) { t.Change.Disk = ledger.DiskID{} }),
		"a member beside": change(func(t *ledger.Transaction) {
			t.Change.Member = ledgertest.Member(1)
		}),
		"too large an index": change(func(t *ledger.Transaction) {
			t.Change.Index = ledger.MaxMemberIndexes
		}),
		"another stream": change(func(t *ledger.Transaction) { t.Nonce.Stream = 0 }),
		"the number 0":   change(func(t *ledger.Transaction) { t.Nonce.Sequence = 0 }),
		"a leave": change(func(t *ledger.Transaction) {
			t.Change.Kind = ledger.ChangeLeave
		}),
		"a join": change(func(t *ledger.Transaction) {
			t.Change.Kind, t.Change.Member, t.Change.Index = ledger.ChangeJoin,
				ledgertest.Member(2), 0
		}),
	} {
		if _, err := transaction.EncodeBody(); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hash, key := genesis.Hash(), ledgertest.Key("node-0")
	_, err := ledger.NewAdmit(key, hash, &now, 1, ledger.DiskID{}, 0)
	if !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("no disk: %v", err)
	}
	_, err = ledger.NewAdmit(nil, hash, &now, 1, ledgertest.Disk(1), 0)
	if !errors.Is(err, ledger.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	transaction := change(func(*ledger.Transaction) {})
	body, err := transaction.EncodeBody()
	if err != nil {
		t.Fatal(err)
	}
	disk := ledgertest.Disk(1)
	want := slices.Concat([]byte{2}, transaction.Ledger[:],
		[]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1, 0xe8, 7, 3, 1}, disk[:],
		[]byte{0})
	if !bytes.Equal(body, want) {
		t.Errorf("the body is %x, want %x", body, want)
	}
	text, err := json.Marshal(transaction.Change)
	shown := `{"kind":"admit","index":1,"disk":"00000000000000000000000000000001"}`
	if err != nil || string(text) != shown {
		t.Errorf("%s, %v", text, err)
	}
	var read ledger.MembershipChange
	err = json.Unmarshal(text, &read)
	if err != nil || read.Disk != disk || read.Kind != ledger.ChangeAdmit {
		t.Errorf("%+v, %v", read, err)
	}
}

func TestDiskText(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"":                                  true,
		"00112233445566778899aabbccddeeff":  true,
		"00000000000000000000000000000000":  false,
		"0011":                              false,
		"00112233445566778899aabbccddeefg":  false,
		"00112233445566778899aabbccddeeff0": false,
	} {
		var disk ledger.DiskID
		err := disk.UnmarshalText([]byte(text))
		if good && (err != nil || disk.String() != text) ||
			!good && !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%q reads as %q: %v", text, disk, err)
		}
	}
	member := ledger.GroupMember{Index: 1}
	if text, err := json.Marshal(member); err != nil || bytes.Contains(text, []byte("disk")) {
		t.Errorf("a member without a disk is %s, %v", text, err)
	}
	twice := ledgertest.OperatedGenesis(2).Membership()
	twice.Members[0].Disk, twice.Members[1].Disk = ledgertest.Disk(1), ledgertest.Disk(1)
	if err := twice.Validate(); !errors.Is(err, ledger.ErrMembership) {
		t.Errorf("a disk of two members: %v", err)
	}
}
