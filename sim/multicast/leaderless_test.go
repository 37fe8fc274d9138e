package multicast

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLeaderlessPlants has each bug of the leaderless form break what it should.
func TestLeaderlessPlants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options  Options
		property order.Property
		evidence string
	}{
		{Options{Plant: plantLoneWriter}, order.Validity, "never A-delivers it"},
		{Options{Plant: plantEarlyReuse, Messages: MessagesMax, Groups: 2, Replicas: 2}, Contract, "bad record in a ring"},
		{Options{Plant: plantOutOfTurn}, order.Integrity, "again"},
		{Options{Plant: plantEnteredTwice}, order.Integrity, "again"},
		{Options{Plant: plantWrongAncestor, Groups: 2, Replicas: 1}, order.Validity, "never A-delivers it"},
	} {
		t.Run(fmt.Sprintf("%s breaks %s", c.options.Plant, c.property), func(t *testing.T) {
			t.Parallel()
			c.options.Engine, c.options.Faults = EngineLeaderless, FaultsAll
			_, result := firstFailure(t, c.options, c.property, 300)
			if text := result.Violations[0].Error(); !strings.Contains(text, c.evidence) {
				t.Errorf("the evidence does not say %q:\n%s", c.evidence, text)
			}
		})
	}
}

// TestLeaderlessTree has every shape of tree carry one message to all groups.
func TestLeaderlessTree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		result, err := Run(Options{Engine: EngineLeaderless, Seed: seed, Groups: GroupsMax, Replicas: 3, Messages: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Violations) > 0 {
			t.Fatalf("seed %d, %s:\n%v", seed, result.Plan, result.Violations[0])
		}
	}
}
