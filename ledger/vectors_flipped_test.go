package ledger_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// flippedVector says which changes of one byte leave an encoding of another vector an encoding.
type flippedVector struct {
	File string `json:"file"`
	List string `json:"list"`
	Name string `json:"name"`
	// Flip01 and Flip80 have a character for each byte of the encoding. It is 1 if decoders take
	// the encoding with the lowest or the highest bit of that byte changed, and 0 if they refuse
	// it.
	Flip01 string `json:"flip_01"`
	Flip80 string `json:"flip_80"`
}

// flippedLists are lists of vectors, with what decodes them.
var flippedLists = []struct {
	file, list string
	decode     func(data []byte) error
}{
	{"basics.json", "geneses", func(data []byte) error {
		_, err := ledger.DecodeGenesis(data)
		return err
	}},
	{"transactions.json", "transactions", decodeBodyOnly},
	{"details.json", "transactions", decodeBodyOnly},
	{"schedules.json", "transactions", decodeBodyOnly},
	{"members.json", "transactions", decodeBodyOnly},
	{"transactions.json", "bundles", decodeBundleOnly},
	{"packed.json", "bundles", decodeBundleOnly},
	{"packed.json", "shown", decodeBodyOnly},
	{"blocks.json", "proofs", decodeProofOnly},
	{"bybundle.json", "proofs", decodeProofOnly},
	{"accounts.json", "proofs", func(data []byte) error {
		_, err := ledger.DecodeAccountProof(data)
		return err
	}},
	{"blocks.json", "certificates", func(data []byte) error {
		_, err := ledger.DecodeCertificate(data)
		return err
	}},
	{"blocks.json", "certified_proofs", func(data []byte) error {
		_, err := ledger.DecodeCertifiedProof(data)
		return err
	}},
}

func decodeBodyOnly(data []byte) error {
	_, err := ledger.DecodeBody(data)
	return err
}

func decodeBundleOnly(data []byte) error {
	_, err := ledger.DecodeBundle(data)
	return err
}

func decodeProofOnly(data []byte) error {
	_, err := ledger.DecodeProof(data)
	return err
}

// TestVectorsFlipped publishes what decoders refuse, in flipped.json. Decoders in other languages
// must take and refuse the same bytes: one that takes more would call an encoding what no node
// takes, and one that takes less would refuse what nodes have agreed on.
func TestVectorsFlipped(t *testing.T) {
	t.Parallel()
	flipped := []flippedVector{}
	for _, each := range flippedLists {
		text, err := os.ReadFile(vectorsFolder + each.file)
		if err != nil {
			t.Fatal(err)
		}
		var lists map[string]json.RawMessage
		var found []struct{ Name, Encoded string }
		if err := json.Unmarshal(text, &lists); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(lists[each.list], &found); err != nil {
			t.Fatal(err)
		}
		for _, good := range found {
			encoded, err := hex.DecodeString(good.Encoded)
			if err != nil || each.decode(encoded) != nil {
				t.Fatalf("%s: %s does not decode", each.file, good.Name)
			}
			taken := func(bit byte) string {
				digits := make([]byte, len(encoded))
				for i := range encoded {
					encoded[i] ^= bit
					// What was decoded may share the memory of its bytes. It is not used any more.
					digits[i] = '0'
					if each.decode(encoded) == nil {
						digits[i] = '1'
					}
					encoded[i] ^= bit
				}
				return string(digits)
			}
			flipped = append(flipped, flippedVector{File: each.file, List: each.list,
				Name: good.Name, Flip01: taken(0x01), Flip80: taken(0x80)})
		}
	}
	compareVectors(t, "flipped.json", flipped)
}
