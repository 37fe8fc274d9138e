package search

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

func prompt(rounds, crashes, suspicions int, idle bool) Options {
	options := eventual(allconcur.EngineAllConcurPlus, rounds, crashes, suspicions)
	options.Prompt, options.Idle = true, idle
	return options
}

// TestPrompt visits everything that three servers can do with prompt delivery, with every crash
// point and a false suspicion that is withdrawn. Idle servers vouch for what others A-broadcast.
func TestPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rounds, crashes, suspicions int
		idle                        bool
	}{
		{1, 0, 0, true}, {1, 1, 0, true}, {1, 0, 1, true}, {2, 1, 0, false},
	} {
		if c.rounds+c.suspicions > 1 && (testing.Short() || raceEnabled) {
			continue
		}
		t.Run(fmt.Sprintf("%d rounds/%d crashes/%d suspicions/idle %t", c.rounds, c.crashes,
			c.suspicions, c.idle), func(t *testing.T) {
			t.Parallel()
			result := mustHold(t, prompt(c.rounds, c.crashes, c.suspicions, c.idle))
			if result.Stalled > 0 {
				t.Errorf("it stands still in %d ends", result.Stalled)
			}
		})
	}
}

// TestPromises takes every interleaving separately. The promises of a majority depend on the states
// of several servers at a time, and the reduction leaves out some combinations of these.
func TestPromises(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("an engine has no goroutine")
	}
	options := prompt(1, 1, 0, true)
	options.Unreduced = true
	mustHold(t, options)
}

// TestPromptCatches: each bug that prompt delivery could have in the engine is found.
func TestPromptCatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault    allconcur.Fault
		rounds   int
		property order.Property
	}{
		{allconcur.FaultPromptUnheld, 1, Promises},
		{allconcur.FaultPromptOneMissing, 1, Promises},
		{allconcur.FaultRerunForgets, 1, Promises},
		{allconcur.FaultCompleteForgotten, 1, order.SetAgreement},
		{allconcur.FaultPromptRerunEpoch, 1, Promises},
		{allconcur.FaultInterruptedForgotten, 2, Promises},
	} {
		if c.rounds > 1 && (testing.Short() || raceEnabled) {
			continue
		}
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			options := prompt(c.rounds, 1, 0, true)
			options.Unreduced, options.Fault = true, c.fault
			mustBreak(t, options, c.property)
		})
	}
}
