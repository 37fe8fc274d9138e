package home

import (
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
)

// TestDAREIsChecked: an engine with a leader has neither what it lacks nor a detector that is
// treated as perfect. The refusals name the key and say what to do.
func TestDAREIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*OrderingConfig)
		says   string
	}{
		"as made":    {func(*OrderingConfig) {}, ""},
		"prompt":     {func(c *OrderingConfig) { c.Prompt = true }, "ordering.prompt"},
		"log_rounds": {func(c *OrderingConfig) { c.LogRounds = true }, "ordering.log_rounds"},
		"a perfect detector": {func(c *OrderingConfig) {
			c.Detector, c.SuspectAfter = allconcur.DetectorPerfect.String(), perfectAfterMin
		}, "dare needs eventual"},
	} {
		config := Initial(dare.EngineName)
		c.change(&config.Ordering)
		err := config.Validate()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
