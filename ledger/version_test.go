package ledger_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestVersionOfGenesis: a genesis with a version has one encoding, and one without a version keeps
// the encoding that it had.
func TestVersionOfGenesis(t *testing.T) {
	t.Parallel()
	single, several := ledgertest.OperatedGenesis(2), ledgertest.ShardedGenesis(2, 0, 0)
	for name, genesis := range map[string]*ledger.Genesis{"single": single, "several": several} {
		plain := genesis.Encode()
		genesis.Version = 1
		if !bytes.Equal(genesis.Encode(), plain) {
			t.Errorf("%s: version 1 is encoded", name)
		}
		genesis.Version = 2
		genesis.VouchedCrossings = genesis.Sharded()
		encoded := genesis.Encode()
		decoded, err := ledger.DecodeGenesis(encoded)
		if err != nil || !reflect.DeepEqual(decoded, genesis) {
			t.Errorf("%s: it does not survive its encoding: %v", name, err)
		}
		wrong := bytes.Clone(encoded)
		wrong[0] = 11
		if _, err := ledger.DecodeGenesis(wrong); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("%s: version 11 of the encoding: %v", name, err)
		}
		for _, version := range []int{-1, ledger.NewestVersion + 1} {
			genesis.Version = version
			if err := genesis.Validate(); !errors.Is(err, ledger.ErrGenesis) ||
				errors.Is(err, ledger.ErrVersion) != (version > 0) {
				t.Errorf("%s: version %d: %v", name, version, err)
			}
		}
	}
	// The version, vouched crossings and quotas come last.
	single.Version = 2
	encoded := single.Encode()
	for _, version := range [][]byte{{0}, {1}, {0x81, 0x80, 0x04}} {
		wrong := append(append(encoded[:len(encoded)-3:len(encoded)-3], version...), 0, 0)
		if _, err := ledger.DecodeGenesis(wrong); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %x: %v", version, err)
		}
	}
}

// TestVersionOfCharter: a change of the charter with a version has one encoding, and is refused
// where its effect would be unknown.
func TestVersionOfCharter(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(2)
	charter := ledgertest.Charter(1, "operator")
	charter.Number = 1
	transaction := ledgertest.NewOperator(genesis).ChangeCharter(charter)
	body := func(version int) ([]byte, error) {
		transaction.Charter.Version = version
		return transaction.EncodeBody()
	}
	plain, err := body(0)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := body(1); err != nil || !bytes.Equal(first, plain) {
		t.Errorf("version 1 is encoded: %v", err)
	}
	for _, version := range []int{2, 3, 1 << 16} {
		encoded, err := body(version)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := ledger.DecodeBody(encoded)
		if err != nil || decoded.Charter.Version != version {
			t.Errorf("version %d: %v", version, err)
		}
		bundle := ledgertest.Signed(ledger.Operator, []string{"operator"}, *decoded)
		err = ledger.VerifyBundle(bundle, genesis, genesis.Hash(), newAuthority(genesis))
		if errors.Is(err, ledger.ErrVersion) != (version > ledger.NewestVersion) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	for _, version := range []int{-1, 1<<16 + 1} {
		charter.Version = version
		if err := charter.Validate(); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %d: %v", version, err)
		}
	}
	// The version, quotas and the note come last.
	encoded, _ := body(2)
	for _, version := range [][]byte{{0}, {1}, {0x81, 0x80, 0x04}} {
		wrong := append(append(encoded[:len(encoded)-3:len(encoded)-3], version...), 0, 0)
		if _, err := ledger.DecodeBody(wrong); !errors.Is(err, ledger.ErrMalformed) {
			t.Errorf("version %x: %v", version, err)
		}
	}
}
