package ledger

import "testing"

// Transactions whose postings were allocated together do not share them, also if a caller appends
// to one, and the room is bounded.
func TestPostingsAreApart(t *testing.T) {
	t.Parallel()
	for _, transactions := range []int{0, 1, 3, 5000} {
		slab := newPostingSlab(transactions)
		var taken [][]Posting
		for i := range 2*transactions + 700 {
			postings := slab.take(1 + i%4)
			if len(postings) != 1+i%4 || cap(postings) != len(postings) {
				t.Fatalf("%d postings with room for %d, want %d", len(postings), cap(postings),
					1+i%4)
			}
			for j := range postings {
				if postings[j] != (Posting{}) {
					t.Fatalf("transaction %d has posting %d of another one", i, j)
				}
				postings[j].Asset = AssetName(rune('a' + i%26))
			}
			_ = append(postings, Posting{Asset: "appended"})
			if most := max(4, min(2*transactions, postingSlabMax)); len(slab.free) > most {
				t.Fatalf("room for %d postings, at most %d wanted", len(slab.free), most)
			}
			taken = append(taken, postings)
		}
		for i, postings := range taken {
			for j := range postings {
				if postings[j].Asset != AssetName(rune('a'+i%26)) {
					t.Fatalf("posting %d of transaction %d is %q", j, i, postings[j].Asset)
				}
			}
		}
	}
}
