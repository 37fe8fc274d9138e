package home

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
)

// TestPromptIsChecked: prompt needs the eventual detector and excludes log_rounds. The engine may
// be one that has no prompt delivery: the operators may change to one that has.
func TestPromptIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"alone": {func(*Config) {}, true},
		"allconcur": {func(c *Config) {
			c.Ordering.Engine = allconcur.EngineAllConcur
		}, true},
		"perfect detector": {func(c *Config) {
			c.Ordering.Detector = allconcur.DetectorPerfect.String()
		}, false},
		"log_rounds": {func(c *Config) { c.Ordering.LogRounds = true }, false},
	} {
		config := Initial("")
		c.change(&config)
		if err := config.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPromptOfHomes: homes of new ledgers have the key, and homes whose file lacks it do not.
func TestPromptOfHomes(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string]bool{"": true, allconcur.EngineAllConcurPlus: true,
		allconcur.EngineAllConcur: false} {
		config := Initial(engine)
		config.Fabric.Listen = "127.0.0.1:8081"
		path := filepath.Join(t.TempDir(), "config.toml")
		text := config.text()
		for _, has := range []bool{true, false} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			read, err := readConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			if read.Ordering.Prompt != (has && want) {
				t.Errorf("engine %q, key as made %v: prompt is %v", engine, has,
					read.Ordering.Prompt)
			}
			if has && read.Ordering != config.Ordering {
				t.Errorf("read %+v, made %+v", read, config)
			}
			text = strings.Replace(text, "\nprompt = true\n", "\n", 1)
		}
	}
}
