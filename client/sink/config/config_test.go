package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client/sink"
	"github.com/ledgerd/ledgerd/ledger"
)

// written writes a file into a folder of the test and returns its path.
func written(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRead: every part of a file reaches the options of the run.
func TestRead(t *testing.T) {
	t.Parallel()
	config, err := Read(written(t, t.TempDir(), "sink.toml", `
name = "books-1"
nodes = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
shards = [0, 2]
[filter]
accounts = ["acme:cash"]
assets = ["EUR", "USD"]
organisations = ["acme"]
[batch]
records = 10
bytes = 1000
[retry]
give_up = "1m"
patience = "2s"
max_backoff = "30s"
[metrics]
listen = "127.0.0.1:9100"
[webhook]
url = "https://example.org/hook"
timeout = "5s"
`))
	if err != nil {
		t.Fatal(err)
	}
	if config.Name != "books-1" || len(config.Nodes) != 2 ||
		config.Metrics.Listen != "127.0.0.1:9100" || config.Webhook.Timeout != 5*time.Second {
		t.Errorf("%+v", config)
	}
	want := sink.Options{BatchRecords: 10, BatchBytes: 1000, GiveUp: time.Minute,
		Patience: 2 * time.Second, MaxBackoff: 30 * time.Second,
		Shards: []ledger.ShardID{0, 2}}
	want.Filter.Accounts = []string{"acme:cash"}
	want.Filter.Assets = []ledger.AssetName{"EUR", "USD"}
	want.Filter.Organisations = []ledger.OrganisationName{"acme"}
	if got := config.Options(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	empty, err := Read(written(t, t.TempDir(), "sink.toml", ""))
	if err != nil || empty.Name != "ledgerd" {
		t.Errorf("%+v, %v", empty, err)
	}
}

// TestFaultyFiles: what is wrong with a file is an error that names it.
func TestFaultyFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for i, test := range []struct{ text, want string }{
		{"x = ", "toml"},
		{"nme = \"x\"", "unknown key nme"},
		{"[kafka]\nbroker = [\"x\"]", "unknown key kafka.broker; the keys are kafka.brokers, "},
		{"name = \"a b\"", `name "a b"`},
		{"name = \"\"", "name"},
		{"name = \"" + strings.Repeat("x", 41) + "\"", "up to 40"},
		{"[filter]\naccounts = [\"a b\"]", "a b"},
		{"[batch]\nrecords = -1", "batch.records is below zero"},
		{"[batch]\nrecords = 10001", "at most 10,000 records"},
		{"[batch]\nbytes = 67108865", "64 MiB"},
		{"[retry]\npatience = \"-1s\"", "retry.patience is below zero"},
		{"[retry]\npatience = \"soon\"", "retry.patience"},
		{"shards = [-1]", "shards: there is no shard -1"},
		{"shards = [4294967296]", "shards: there is no shard 4294967296"},
	} {
		path := written(t, folder, fmt.Sprintf("%d.toml", i), test.text)
		_, err := Read(path)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	if _, err := Read(filepath.Join(folder, "none.toml")); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// TestTargets: each kind of target is made of its section, with secrets from files beside the
// configuration, and its faults name the key and no secret.
func TestTargets(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	secret := strings.Repeat("s", 32)
	written(t, folder, "secret", secret+"\n")
	written(t, folder, "empty", " \n")
	written(t, folder, "ca.pem", "no certificate")
	for i, test := range []struct{ kind, text, want string }{
		{"postgres", "[postgres]\nurl = \"postgres://u@127.0.0.1/db\"\npassword_file = \"secret\"",
			""},
		{"postgres", "[postgres]\nurl = \"postgres://u@127.0.0.1/db\"\npassword_file = \"none\"",
			"postgres.password_file: open " + folder},
		{"postgres", "[postgres]\npassword_file = \"empty\"", "empty is empty"},
		{"postgres", "[postgres]\npassword_file = \"secret\"\npassword_env = \"X\"",
			"postgres.password_env and postgres.password_file: name one"},
		{"postgres", "[postgres]\nurl_env = \"LEDGERD_TEST_NOT_SET\"",
			"the environment has no LEDGERD_TEST_NOT_SET"},
		{"kafka", "[kafka]\nbrokers = [\"127.0.0.1:9092\"]\ntopic = \"t\"", ""},
		{"kafka", "[kafka]\nbrokers = [\"127.0.0.1:9092\"]\ntopic = \"t\"\n" +
			"mechanism = \"plain\"\nuser = \"u\"\npassword_file = \"secret\"",
			"readable on the way"},
		{"kafka", "[kafka]\nbrokers = [\"127.0.0.1:9092\"]\ntopic = \"t\"\n" +
			"mechanism = \"plain\"\nuser = \"u\"\npassword_file = \"secret\"\ntls = true", ""},
		{"kafka", "[kafka]\nca = \"ca.pem\"", "ca.pem has no certificate"},
		{"kafka", "[kafka]\nca = \"none.pem\"", "ca: open"},
		{"nats", "[nats]\nservers = [\"nats://127.0.0.1:4222\"]\nstream = \"s\"\n" +
			"token_file = \"secret\"", ""},
		{"nats", "", "nats"},
		{"webhook", "[webhook]\nurl = \"https://example.org/\"\nsecret_file = \"secret\"\n" +
			"folder = \"state\"", ""},
		{"webhook", "[webhook]\nurl = \"http://example.org/\"\nsecret_file = \"secret\"\n" +
			"folder = \"state\"", "allow_http"},
		{"webhook", "[webhook]\nurl = \"https://example.org/\"\nfolder = \"state\"", "secret"},
		{"mail", "", `kind "mail": use postgres, kafka, nats, webhook`},
	} {
		config, err := Read(written(t, folder, fmt.Sprintf("%d.toml", i), test.text))
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		target, err := config.Target(test.kind)
		if (err == nil) != (test.want == "") || err != nil && (!errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s %q: %v, want %q", test.kind, test.text, err, test.want)
		}
		if err == nil && target == nil {
			t.Errorf("%s %q makes no target", test.kind, test.text)
		}
	}
}

// TestSecretsOfTheEnvironment cannot run beside other tests: it changes the environment.
func TestSecretsOfTheEnvironment(t *testing.T) {
	t.Setenv("LEDGERD_TEST_URL", "postgres://u@127.0.0.1/db")
	config, err := Read(written(t, t.TempDir(), "sink.toml",
		"[postgres]\nurl_env = \"LEDGERD_TEST_URL\""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Target("postgres"); err != nil {
		t.Error(err)
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"postgres": "postgres", "postgresql": "postgres",
		"webhooks": "webhook", "kafka": "kafka", "nats": "nats"} {
		if kind, known := KindOf(name); kind != want || !known {
			t.Errorf("%s: %s, %v", name, kind, known)
		}
	}
	if _, known := KindOf("mail"); known {
		t.Error("mail is a kind")
	}
}
