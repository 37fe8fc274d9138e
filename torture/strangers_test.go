//go:build linux

package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
)

// TestStrangers stops all nodes of one of two shards. Meanwhile commands replace all members of the
// other one. Then the first shard knows nobody who runs. It finds the new members all the same,
// with either shard above the other, and once more from what its homes keep.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for away, name := range []string{"the one above is away", "the one below is away"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const members = 2
			s := newHomes(t, 2*members, nil, withEngine(*engineFlag, "--shards", "2", "--nodes",
				"2")...)
			s.start(s.all()...)
			of := func(shard int) []int { return []int{shard * members, shard*members + 1} }
			s.ordering(of(0)...)
			s.ordering(of(1)...)
			s.kill(of(away)...)
			present := of(1 - away)
			for _, old := range of(1 - away) {
				joined := s.join(present[0])
				s.start(joined)
				present = append(present, joined)
				s.ordering(present...)
				present = slices.DeleteFunc(present, func(i int) bool { return i == old })
				succeed(t, "cluster", "leave", s.homes[old].Name(), "--via",
					testnet.URL(s.homes[present[0]]), "--operator",
					filepath.Join(s.dir, testnet.OperatorKeyFile))
				<-s.processes[old].ended
				s.processes[old] = nil
				s.ordering(present...)
			}
			s.start(of(away)...)
			s.ordering(of(away)...)
			for _, at := range of(away) {
				s.sees(at, 1-away, present)
			}
			for _, at := range present {
				s.sees(at, away, of(away))
			}
			s.kill(of(away)...)
			s.start(of(away)...)
			s.sees(of(away)[0], 1-away, present)
		})
	}
}

// sees waits until a node sees that these members of a shard order, and no others.
func (s *shard) sees(at, shard int, members []int) {
	s.t.Helper()
	var want []string
	for _, i := range members {
		want = append(want, s.homes[i].Name()+" ordering")
	}
	s.eventually(fmt.Sprintf("node %d sees nodes %v of shard %d", at, members, shard),
		func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			tree, err := s.nodes[at].Tree(ctx)
			if err != nil {
				return err
			}
			var names []string
			for _, member := range tree.GetShards()[shard].GetMembers() {
				names = append(names, member.GetName()+" "+member.GetMode())
			}
			if slices.Sort(names); !slices.Equal(names, want) {
				return fmt.Errorf("it sees %q, want %q", names, want)
			}
			return nil
		})
}
