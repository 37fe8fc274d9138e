package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/trains"
)

// TestTrainsAreChecked: a ring has three trains or more, and no detector that is treated as
// perfect. The refusals name the key and say what to do. What has no effect with it may be set.
func TestTrainsAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*OrderingConfig)
		says   []string
	}{
		"as made":   {func(*OrderingConfig) {}, nil},
		"the least": {func(c *OrderingConfig) { c.Trains = 3 }, nil},
		"the most":  {func(c *OrderingConfig) { c.Trains = trains.TrainsMax }, nil},
		"too few": {func(c *OrderingConfig) { c.Trains = 2 },
			[]string{"ordering.trains", "3 and 64"}},
		"too many": {func(c *OrderingConfig) { c.Trains = 65 },
			[]string{"ordering.trains", "3 and 64"}},
		"none where there is no ring": {func(c *OrderingConfig) {
			c.Engine, c.Trains = allconcur.EngineAllConcur, 0
		}, nil},
		"prompt":     {func(c *OrderingConfig) { c.Prompt = true }, nil},
		"log_rounds": {func(c *OrderingConfig) { c.LogRounds = true }, nil},
		"a perfect detector": {func(c *OrderingConfig) {
			c.Detector, c.SuspectAfter = allconcur.DetectorPerfect.String(), perfectAfterMin
		}, []string{"ordering.detector", "trains needs eventual", "ordering.engine"}},
	} {
		config := Initial(trains.EngineName)
		c.change(&config.Ordering)
		err := config.Validate()
		if (err == nil) != (c.says == nil) || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		for _, says := range c.says {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want it to mention %q", name, err, says)
			}
		}
	}
}

// TestTrainsOfHomes: the file of a home says how many trains there are, if the engine has any.
func TestTrainsOfHomes(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"", trains.EngineName} {
		config := Initial(engine)
		config.Fabric.Listen = "127.0.0.1:8081"
		path := filepath.Join(t.TempDir(), "config.toml")
		text := config.text()
		if has := strings.Contains(text, "\ntrains = 4\n"); has != (engine == trains.EngineName) {
			t.Errorf("engine %q: the file has the key: %v", engine, has)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := readConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		if read.Ordering != config.Ordering {
			t.Errorf("read %+v, made %+v", read.Ordering, config.Ordering)
		}
	}
}
