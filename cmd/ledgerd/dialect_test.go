package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls visit with every command that is not just a group of others.
func everyCommand(visit func(*cobra.Command)) {
	var descend func(*cobra.Command)
	descend = func(command *cobra.Command) {
		if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
			return
		}
		if !command.HasSubCommands() || command.Flags().Lookup("json") != nil {
			visit(command)
		}
		for _, each := range command.Commands() {
			descend(each)
		}
	}
	descend(newRootCommand())
}

// failsAsJSON checks that a command which failed says so in the one form, as the last line of the
// standard error, and that the standard output has JSON or nothing.
func failsAsJSON(t *testing.T, line string, result outcome, status int) failureReport {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(result.errs, "\n"), "\n")
	last := lines[len(lines)-1]
	var report failureReport
	decoder := json.NewDecoder(strings.NewReader(last))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil || report.Error == "" ||
		!strings.HasSuffix(result.errs, "\n") {
		t.Errorf("ledgerd %s: the error is not in the form of all commands (%v):\n%s", line, err,
			result.errs)
	}
	if result.status != status {
		t.Errorf("ledgerd %s: exit status %d, want %d: %s", line, result.status, status,
			result.errs)
	}
	decoder = json.NewDecoder(strings.NewReader(result.out))
	for decoder.More() {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Errorf("ledgerd %s: the output is no JSON: %v\n%s", line, err, result.out)
			break
		}
	}
	return report
}

// TestWrongLinesAsJSON gives every command of the tree a wrong flag, and too few or too many
// arguments where it refuses them.
func TestWrongLinesAsJSON(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, folder: t.TempDir()}
	everyCommand(func(command *cobra.Command) {
		if command.Flags().Lookup("json") == nil {
			return // ledgerd start, which shows only its log; TestEveryCommandTeaches names it
		}
		path := strings.TrimPrefix(command.CommandPath(), "ledgerd ")
		lines := []string{path + " --no-such-flag --json", path + " --json --no-such-flag"}
		many := strings.Repeat(" x", 40)
		if command.Args != nil && command.Args(command, nil) != nil {
			lines = append(lines, path+" --json")
		}
		if command.Args != nil && command.Args(command, strings.Fields(many)) != nil {
			lines = append(lines, path+many+" --json")
		}
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			if kind := flag.Value.Type(); kind == "int" || kind == "duration" || kind == "uint64" {
				lines = append(lines, path+" --json --"+flag.Name+"=nonsense")
			}
		})
		for _, line := range lines {
			result := s.run(line)
			report := failsAsJSON(t, line, result, exitUsage)
			if !strings.Contains(report.Next, "--help") {
				t.Errorf("ledgerd %s: what next? %+v", line, report)
			}
			if result.out != "" || strings.Count(result.errs, "\n") != 1 {
				t.Errorf("ledgerd %s prints more than its error: %+v", line, result)
			}
		}
	})
}

// asking has the arguments with which each command asks a node. A new command that has the flag
// --node needs a line here.
var asking = map[string]string{
	"abci":              "--config %d/abci.toml",
	"account close":     "acme:cash --yes",
	"account freeze":    "acme:cash",
	"account history":   "acme:cash",
	"account label":     "acme:cash colour=red",
	"account limit":     "acme:cash --floor 5",
	"account list":      "",
	"account open":      "acme:vault",
	"account show":      "acme:cash",
	"account statement": "acme:cash",
	"account unfreeze":  "acme:cash",
	"asset cap":         "EUR 5",
	"asset close":       "EUR --yes",
	"asset issuers":     "EUR --add acme",
	"asset list":        "",
	"asset register":    "EUR --organisation acme",
	"asset show":        "EUR",
	"block":             "head",
	"cut":               "",
	"evidence":          "",
	"export":            "--balances",
	"figures":           "",
	"hold list":         "",
	"hold place":        "acme:cash 5 --to shop:cash",
	"hold post":         strings.Repeat("ab", 32),
	"hold show":         strings.Repeat("ab", 32),
	"schedule cancel":   strings.Repeat("ab", 32),
	"schedule list":     "",
	"schedule place":    "acme:cash shop:cash 5 --first 24h",
	"schedule show":     strings.Repeat("ab", 32),
	"hold void":         strings.Repeat("ab", 32),
	"keys revoke":       "acme " + strings.Repeat("ab", 32),
	"keys rotate":       "acme",
	"org add":           "acme",
	"org list":          "",
	"org policy":        "acme",
	"org show":          "acme",
	"rounds":            "",
	"shards":            "",
	"shards advise":     "",
	"sink":              "webhook --config %d/sink.toml",
	"status":            "",
	"trial-balance":     "",
	"tx cancel":         strings.Repeat("ab", 32) + " --signer acme",
	"tx get":            "acme:r",
	"tx import":         "%d/entries.jsonl",
	"tx post":           "--posting acme:cash=-5 --posting acme:vault=5",
	"tx put":            "acme:r x",
	"tx refund":         strings.Repeat("ab", 32) + " 5",
	"tx reverse":        strings.Repeat("ab", 32),
	"tx status":         strings.Repeat("ab", 32),
	"tx submit":         "%d/payment.tx",
	"tx template post": "../../examples/templates/sale.toml --set net=1.00 --set tax=0.20 " +
		"--set gross=1.20 --set receipt=7 --set day=2026-01-31",
	"tx transfer": "acme:cash acme:vault 5",
}

// notAsking are the commands with a flag --node of another meaning, or that need no node.
var notAsking = []string{"keys list", "testnet start", "testnet stop"}

// TestUnreachableAsJSON runs every command that asks a node where no node answers.
func TestUnreachableAsJSON(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	s.must("tx post --posting acme:cash=-5 --posting acme:vault=5 --out %d/payment.tx %n %k")
	for name, content := range map[string]string{
		"entries.jsonl": `{"postings":[{"account":"a","amount":"0"}]}`,
		"secret":        strings.Repeat("x", 32),
		"abci.toml": `chain_id = "kv"
application = "tcp://127.0.0.1:2"
folder = "adapter"
timing = {give_up = "1s"}`,
		"sink.toml": `retry = {give_up = "1s", patience = "1s"}
webhook = {url = "http://127.0.0.1:2", secret_file = "secret", allow_http = true, folder = "x"}`} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	everyCommand(func(command *cobra.Command) {
		path := strings.TrimPrefix(command.CommandPath(), "ledgerd ")
		arguments, known := asking[path]
		if command.Flags().Lookup("node") == nil || slices.Contains(notAsking, path) {
			if known {
				t.Errorf("%s has no flag --node", path)
			}
			return
		}
		if !known {
			t.Errorf("%s is new: say how it asks a node", path)
			return
		}
		line := path + " " + arguments + " --json --node=http://127.0.0.1:1"
		for flag, value := range map[string]string{"timeout": "2s", "keys": "%d/keys",
			"state": "%d/state", "patience": "1s"} {
			if command.Flags().Lookup(flag) != nil {
				line += " --" + flag + "=" + value
			}
		}
		result := s.run(line)
		report := failsAsJSON(t, line, result, exitFailure)
		if !strings.Contains(report.Error+report.Next, "127.0.0.1:1") {
			t.Errorf("ledgerd %s: the error names no node: %+v", line, report)
		}
	})
}

// TestAmountsAsText: files take amounts as integers of the smallest unit, as text or as numbers,
// and as text with all decimals of the asset. What commands write is text.
func TestAmountsAsText(t *testing.T) {
	t.Parallel()
	s := newAssetShell(t)
	s.must("asset register EUR --organisation acme --decimals 2 --cap 1000.00 --issuer acme %n %k")
	entry := func(give, take string) string {
		return `{"postings":[{"account":"acme:mint","amount":` + give + `,"asset":"EUR"},` +
			`{"account":"acme:cash","amount":` + take + `,"asset":"EUR"}]}`
	}
	for _, text := range []string{entry(`"-1.50"`, `"1.50"`), entry(`-150`, `"1.50"`),
		entry(`"-150"`, `150`), entry(`"-0.05"`, `5`)} {
		s.must("tx post - %n %k", text)
	}
	for _, test := range []struct{ text, want string }{
		{entry(`-1.50`, `1.50`), `as text`},
		{entry(`"-1.5"`, `"1.5"`), "write all of them"},
		{entry(`"-1.505"`, `"1.505"`), "never rounded"},
		{entry(`"-1.50"`, `"-1."`), "posting 2"},
		{strings.ReplaceAll(entry(`"-1.50"`, `"1.50"`), "EUR", "USD"), "none"},
		{strings.ReplaceAll(entry(`"-1.50"`, `"1.50"`), "EUR", "unit"), "none"},
	} {
		if result := s.run("tx post - %n %k", test.text); result.status == exitDone ||
			!strings.Contains(result.errs, test.want) {
			t.Errorf("%s: no %q in %+v", test.text, test.want, result)
		}
	}
	want := `{"account":"acme:cash","asset":"EUR","amount":"455","amount_decimal":"4.55"}` + "\n" +
		`{"account":"acme:mint","asset":"EUR","amount":"-455","amount_decimal":"-4.55"}` + "\n"
	if got := s.must("export --balances %n"); got != want {
		t.Errorf("balances\n%s, want\n%s", got, want)
	}
	var stored bytes.Buffer
	if err := export(t.Context(), &stored, storeExporter{s.cluster.Node(0).Store(), nil},
		false); err != nil || stored.String() != want {
		t.Errorf("balances of the folder\n%s%v, want\n%s", &stored, err, want)
	}

	// An import, twice: the decimals are part of what a line says, and nothing is imported again.
	lines := strings.ReplaceAll(strings.Join([]string{entry(`"-0.45"`, `"0.45"`),
		entry(`"-1.5"`, `"1.5"`), entry(`"-100"`, `"1.00"`),
		strings.ReplaceAll(entry(`"-1.50"`, `"1.50"`), "EUR", "USD"), ""}, "\n"), "acme:", "my-")
	if err := os.WriteFile(filepath.Join(s.folder, "lines"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"a", "a", "b"} {
		result := s.run("tx import %d/lines --org acme --issuer my-mint --json %n %k --state %d/" +
			state)
		report := object(t, result.out)
		if report["imported"] != 2.0 || report["failed"] != 2.0 ||
			!strings.Contains(result.out, "EUR has 2 decimals: write all of them, -1.50") {
			t.Errorf("%+v", result)
		}
	}
	if got := s.must("export --balances %n"); !strings.Contains(got,
		`{"account":"my-cash","asset":"EUR","amount":"145","amount_decimal":"1.45"}`) {
		t.Error(got)
	}
}
