package generation

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/trains"
)

// trainsSettings are groups that TRAINS orders in, with one to five trains.
func trainsSettings() (list []frozenSetting) {
	for _, number := range []int{1, 2, 3, 5} {
		for _, eons := range []bool{false, true} {
			for _, size := range [][2]int{{2, 2}, {2, 3}, {3, 3}, {3, 4}, {3, 5}, {4, 4}, {5, 6}} {
				list = append(list, frozenSetting{engine: trains.EngineName, n: size[0],
					shard: size[1], eons: eons, trains: number})
			}
		}
	}
	return list
}

// TestFrozenTrains is TestFrozenEngines for TRAINS: what any server A-delivered is in the base and
// the tail. No server has more votes than the bound, and some need all of it.
func TestFrozenTrains(t *testing.T) {
	t.Parallel()
	all, seeds := runAllFrozen(t, trainsSettings())
	if seeds >= 30 && (10*all.beyond < all.frozen || all.bound == 0 || all.third == 0 ||
		all.eons == 0 || all.older == 0 || all.forced == 0) {
		t.Fatal("too little of what is to be tested came up")
	}
}

// TestFrozenTrainsCatch: a tail that is one round short loses what was A-delivered, and so does one
// that is as short as after a run of AllConcur's. So do engines that A-deliver too early.
func TestFrozenTrainsCatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, plant := range map[string]frozenPlant{
		"one round short":    {choose: FaultTailShort},
		"as for AllConcur":   {choose: FaultTailOfAllConcur},
		"tail forgotten":     {choose: FaultTailForgotten},
		"votes dropped":      {dropVotes: true},
		"after one rotation": {trains: trains.FaultOneRotation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(400) {
				for _, setting := range trainsSettings() {
					_, err := runFrozen(seed, setting, plant)
					if errors.Is(err, errLost) {
						t.Logf("%+v, seed %d: %v", setting, seed, err)
						return
					}
				}
			}
			t.Fatal("the planted bug goes unnoticed")
		})
	}
}
