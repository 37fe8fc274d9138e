package api_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
)

// TestReasonsArePublished compares testdata/reasons.json with the words of the results, by their
// codes. Programs in other languages check their own lists against the file.
func TestReasonsArePublished(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/reasons.json")
	if err != nil {
		t.Fatal(err)
	}
	var published, want []string
	if err := json.Unmarshal(text, &published); err != nil {
		t.Fatal(err)
	}
	last := ledger.Code(math.MaxUint8)
	for strings.HasPrefix(last.String(), "code ") {
		last--
	}
	for code := ledger.Applied; code <= last; code++ { // between them are numbers without a code
		want = append(want, api.ReasonCode(code))
	}
	if !slices.Equal(published, want) {
		wanted, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("testdata/reasons.json should be\n%s", wanted)
	}
}
