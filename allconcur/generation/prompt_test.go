package generation

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// promptSettings are those of AllConcur+, with prompt delivery.
func promptSettings() (list []frozenSetting) {
	for _, setting := range frozenSettings() {
		if setting.engine == allconcur.EngineAllConcurPlus {
			setting.prompt = true
			list = append(list, setting)
		}
	}
	return list
}

// TestFrozenPrompt is TestFrozenEngines with prompt delivery: what any server A-delivered promptly
// is in the base and the tail, too.
func TestFrozenPrompt(t *testing.T) {
	t.Parallel()
	all, seeds := runAllFrozen(t, promptSettings())
	if seeds >= 30 && (10*all.beyond < all.frozen/2 || all.prompt == 0 || all.removed == 0 ||
		all.halted == 0 || all.forced == 0) {
		t.Fatal("too little of what is to be tested came up")
	}
}

// TestChooseVouched: if no value of a round passes, choose takes what the server held that
// A-broadcast in the round in the last state, round by round.
func TestChooseVouched(t *testing.T) {
	t.Parallel()
	run, shard := NewRun(1, 0), Membership{Members: []order.ServerID{0, 1, 2}}
	round := func(round order.Round, epoch order.Epoch, reliable bool, content byte) TailRound {
		return TailRound{Round: round, Epoch: epoch, Reliable: reliable, Content: [32]byte{content}}
	}
	promised := func(server order.ServerID, vouched ...TailRound) Promised {
		return Promised{server, Report{Head: Head{Generation: 1, Height: 6, Round: 6},
			Original: true, Run: run, Shard: shard, Membership: shard, Vouched: vouched}}
	}
	vote := []Vote{{TailRound: round(7, 1, false, 3), Voters: shard.Members}}
	one, other := promised(0, round(7, 2, false, 1)), promised(1, round(8, 1, false, 4))
	one.Report.Votes, other.Report.Votes = vote, vote
	forgot := promised(1, round(7, 2, false, 2))
	forgot.Report.Restarted = true
	earlier := promised(1, round(7, 2, false, 2))
	earlier.Report.Run--
	for name, c := range map[string]struct {
		promises []Promised
		want     []TailRound
	}{
		"nothing": {[]Promised{promised(0), promised(1)}, nil},
		"of one": {[]Promised{promised(0), promised(1, round(7, 1, false, 2))},
			[]TailRound{round(7, 1, false, 2)}},
		"of the last epoch": {[]Promised{promised(0, round(7, 2, false, 1)),
			promised(1, round(7, 1, false, 2))}, []TailRound{round(7, 2, false, 1)}},
		"of the unreliable state": {[]Promised{promised(0, round(7, 2, true, 1)),
			promised(1, round(7, 2, false, 2))}, []TailRound{round(7, 2, false, 2)}},
		"of the unreliable state, in the other order": {[]Promised{
			promised(0, round(7, 2, false, 2)), promised(1, round(7, 2, true, 1))},
			[]TailRound{round(7, 2, false, 2)}},
		"not of the unreliable state of an earlier epoch": {[]Promised{
			promised(0, round(7, 2, true, 1)), promised(1, round(7, 1, false, 2))},
			[]TailRound{round(7, 2, true, 1)}},
		"of the first of one state": {[]Promised{promised(0, round(7, 2, false, 1)),
			promised(1, round(7, 2, false, 2))}, []TailRound{round(7, 2, false, 1)}},
		"after a value that passes": {[]Promised{one, other},
			[]TailRound{round(7, 1, false, 3), round(8, 1, false, 4)}},
		"not without the round before": {[]Promised{promised(0), promised(1,
			round(8, 1, false, 2))}, nil},
		"not of one that forgot": {[]Promised{promised(0), forgot, promised(2)}, nil},
		"not of an earlier run":  {[]Promised{promised(0), earlier}, nil},
	} {
		_, tail := choose(c.promises, nil, FaultNone)
		if !slices.EqualFunc(tail, c.want, TailRound.Equal) {
			t.Errorf("%s: %+v, want %+v", name, tail, c.want)
		}
	}
	first, found := (&election{vouched: []TailRound{round(7, 2, false, 2), round(7, 1, false, 1),
		round(7, 1, false, 3), round(7, 2, false, 4)}}).lastVouched(7, FaultVouchedEarliest)
	if !found || first.Content != [32]byte{1} {
		t.Errorf("the planted bug takes %+v", first)
	}
}

// TestFrozenPromptCatches proves that TestFrozenPrompt can fail.
func TestFrozenPromptCatches(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
	for name, plant := range map[string]frozenPlant{
		"vouched ignored":    {choose: FaultVouchedIgnored},
		"unheld":             {engine: allconcur.FaultPromptUnheld},
		"one missing":        {engine: allconcur.FaultPromptOneMissing},
		"rerun forgets":      {engine: allconcur.FaultRerunForgets},
		"complete forgotten": {engine: allconcur.FaultCompleteForgotten},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disagree := []error{errDisagree, errLost, errReplaced}
			for seed := range uint64(400) {
				for _, setting := range promptSettings() {
					_, err := runFrozen(seed, setting, plant)
					if slices.ContainsFunc(disagree, func(kind error) bool {
						return errors.Is(err, kind)
					}) {
						t.Logf("%+v, seed %d: %v", setting, seed, err)
						return
					}
				}
			}
			t.Fatal("the planted bug goes unnoticed")
		})
	}
}
