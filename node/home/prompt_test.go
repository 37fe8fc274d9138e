package home

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
)

// TestPromptIsChecked: prompt needs allconcur+ and the eventual detector, and excludes log_rounds.
func TestPromptIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"alone": {func(*Config) {}, true},
		"allconcur": {func(c *Config) {
			c.Ordering.Engine = allconcur.EngineAllConcur
		}, false},
		"perfect detector": {func(c *Config) {
			c.Ordering.Detector = allconcur.DetectorPerfect.String()
		}, false},
		"log_rounds": {func(c *Config) { c.Ordering.LogRounds = true }, false},
	} {
		config := Default()
		config.Ordering.Prompt = true
		c.change(&config)
		if err := config.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
