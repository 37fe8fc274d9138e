package route

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestMergeHolds: pages of several shards, merged, show each hold once and in order, whatever the
// sizes of the pages are, and also if a shard ends its page early.
func TestMergeHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards := make([][]string, rapid.IntRange(1, 4).Draw(t, "shards"))
		var want []string
		for id := range rapid.IntRange(0, 40).Draw(t, "holds") {
			at := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
			text := fmt.Sprintf("%04x", id*7)
			shards[at] = append(shards[at], text)
			want = append(want, text)
		}
		size := rapid.IntRange(1, 9).Draw(t, "size")
		var got []string
		for token, turns := "", 0; ; turns++ {
			var pages []*ledgerdv1.ListHoldsResponse
			for _, all := range shards {
				page := &ledgerdv1.ListHoldsResponse{}
				from, _ := slices.BinarySearch(all, token)
				if token != "" && from < len(all) && all[from] == token {
					from++
				}
				// A shard may look at few of them, and end its page before it is full.
				most := rapid.IntRange(1, size).Draw(t, "looked")
				for _, id := range all[from:min(len(all), from+most)] {
					page.Holds = append(page.Holds, &ledgerdv1.OpenHold{HoldHex: id})
				}
				if from+most < len(all) {
					page.NextPageToken = all[from+most-1]
				}
				pages = append(pages, page)
			}
			holds, next := mergeHolds(pages, size)
			if len(holds) > size {
				t.Fatalf("a page of %d", len(holds))
			}
			for _, each := range holds {
				got = append(got, each.GetHoldHex())
			}
			if next == "" {
				break
			}
			if next <= token || turns > 200 {
				t.Fatalf("from %q to %q", token, next)
			}
			token = next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
