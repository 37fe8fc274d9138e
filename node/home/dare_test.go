package home

import (
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
)

// TestDAREIsChecked: an engine with a leader has no detector that is treated as perfect. The
// refusal names the key and says what to do. What has no effect with it may be set.
func TestDAREIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*OrderingConfig)
		says   string
	}{
		"as made":    {func(*OrderingConfig) {}, ""},
		"prompt":     {func(c *OrderingConfig) { c.Prompt = true }, ""},
		"log_rounds": {func(c *OrderingConfig) { c.LogRounds = true }, ""},
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
