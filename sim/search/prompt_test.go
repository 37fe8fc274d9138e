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

// TestPromptCatches: each bug that prompt delivery could have in the engine is found.
func TestPromptCatches(t *testing.T) {
	t.Parallel()
	for _, fault := range []allconcur.Fault{allconcur.FaultPromptUnheld,
		allconcur.FaultRerunForgets, allconcur.FaultCompleteForgotten,
		allconcur.FaultPromptRerunEpoch} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			options := prompt(1, 1, 0, true)
			options.Fault = fault
			mustBreak(t, options, order.SetAgreement)
		})
	}
}
