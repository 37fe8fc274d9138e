package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	reported "github.com/ledgerd/ledgerd/node/report"
)

// outcome is the result of a command line.
type outcome struct {
	out, errs string
	status    int
}

// shell runs command lines against nodes in this process, with a keyring of its own.
type shell struct {
	t       *testing.T
	cluster *apitest.Cluster
	doors   []*apitest.TestServer
	folder  string
}

func newShell(t *testing.T, nodes int) *shell {
	t.Helper()
	return newShellOf(t, nodes, apitest.Options{})
}

func newShellOf(t *testing.T, nodes int, options apitest.Options) *shell {
	t.Helper()
	options.Nodes = nodes
	s := &shell{t: t, cluster: apitest.NewCluster(t, options), folder: t.TempDir()}
	for i := range nodes {
		s.doors = append(s.doors, apitest.Serve(t, s.cluster.Node(i), api.Options{}))
	}
	return s
}

// run runs one command line as the shell would. %n, %k and %d stand for the nodes, the keyring and
// the folder.
func (s *shell) run(line string, input ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.runContext(ctx, line, input...)
}

func (s *shell) runContext(ctx context.Context, line string, input ...string) outcome {
	s.t.Helper()
	var urls []string
	for _, door := range s.doors {
		urls = append(urls, door.URL)
	}
	replace := strings.NewReplacer("%n", "--node="+strings.Join(urls, ","), "%k",
		"--keys="+filepath.Join(s.folder, "keys"), "%d", s.folder)
	arguments := strings.Fields(line)
	for i := range arguments {
		arguments[i] = replace.Replace(arguments[i])
	}
	var out, errs bytes.Buffer
	status := execute(ctx, arguments, strings.NewReader(strings.Join(input, "")), &out, &errs)
	return outcome{out.String(), errs.String(), status}
}

// longer runs a command line that ends at its --timeout: after half a second, then after twice
// as long each time, until it says what is wanted or the machine has had 15 seconds for it.
func (s *shell) longer(line, want string) (result outcome) {
	s.t.Helper()
	for timeout := 500 * time.Millisecond; timeout <= 8*time.Second; timeout *= 2 {
		result = s.run(fmt.Sprintf("%s --timeout %v", line, timeout))
		if strings.Contains(result.out+result.errs, want) {
			break
		}
	}
	return result
}

// must runs a command line that has to succeed.
func (s *shell) must(line string, input ...string) string {
	s.t.Helper()
	result := s.run(line, input...)
	if result.status != exitDone {
		s.t.Fatalf("ledgerd %s: exit status %d\n%s%s", line, result.status, result.out, result.errs)
	}
	return result.out
}

// object runs a command line with --json and returns the object.
func (s *shell) object(line string, input ...string) map[string]any {
	s.t.Helper()
	return object(s.t, s.must(line+" --json", input...))
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("no JSON object: %v\n%s", err, text)
	}
	return value
}

// wantKeys checks that an object has these fields.
func wantKeys(t *testing.T, value map[string]any, keys string) {
	t.Helper()
	for _, key := range strings.Fields(keys) {
		if _, present := value[key]; !present {
			t.Errorf("no field %s in %v", key, value)
		}
	}
}

// bank registers acme and opens acme:mint, an issuer, acme:cash and acme:vault, with 100 in
// acme:cash.
func (s *shell) bank() {
	s.t.Helper()
	s.must("keys create acme --plain %k")
	s.must("org add acme --plain %n %k")
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:cash acme:vault %n %k")
	s.must("tx transfer acme:mint acme:cash 100 %n %k")
}

func TestAccountsAndTransfers(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	status := s.object("tx transfer --from acme:cash --to acme:vault --amount 30 --asset unit " +
		"--note lunch --wait ordered %n %k")
	wantKeys(t, status, "id state height index")
	if again := s.must("org add acme %n %k"); !strings.Contains(again, "registered already") {
		t.Error(again)
	}
	account := s.object("account show acme:cash %n")
	wantKeys(t, account, "account organisation issuer opened_height balances height")
	if shown := fmt.Sprint(account["balances"]); shown != "[map[amount:70 asset:unit]]" {
		t.Error(shown)
	}
	s.must("account open acme:fresh %n %k")
	if text := s.must("account show acme:fresh %n"); !strings.HasSuffix(text,
		"\nbalances\n  none\n") {
		t.Errorf("an account that never had an asset: %q", text)
	}
	if text := s.must("account show acme:mint %n"); !strings.Contains(text, "-100  unit") ||
		!strings.Contains(text, "issuer") {
		t.Error(text)
	}
	if accounts := s.object("account list acme: %n")["accounts"].([]any); len(accounts) != 4 {
		t.Error(accounts)
	}
	if text := s.must("account list --limit 1 %n"); !strings.Contains(text,
		"these are the first 1") {
		t.Error(text)
	}
	history := s.object("account history acme:cash %n")
	entry := history["entries"].([]any)[0].(map[string]any)
	wantKeys(t, entry, "transaction_id height index time_ms changes balances note")
	if entry["note"] != "lunch" || entry["transaction_id"] != status["id"] {
		t.Error(entry)
	}
	if text := s.must("account history acme:cash --oldest-first %n"); !strings.Contains(text,
		"+100") || !strings.Contains(text, "-30") {
		t.Error(text)
	}
	wantKeys(t, s.object("org show acme %n"), "name public_keys shard registered_height")
	if text := s.must("org list %n"); !strings.Contains(text, "acme") {
		t.Error(text)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, folder: t.TempDir()}
	if text := s.must("keys list %k"); !strings.Contains(text, "ledgerd keys create") {
		t.Error(text)
	}
	made := s.object("keys create acme --plain %k")
	wantKeys(t, made, "organisation public_key file")
	if public := strings.TrimSpace(s.must("keys show acme --public %k")); public !=
		made["public_key"] {
		t.Error(public)
	}
	if text := s.must("keys show acme %k"); !strings.Contains(text, "acme.key") ||
		strings.Contains(text, "PRIVATE") {
		t.Error(text)
	}
	if again := s.run("keys create acme --plain %k"); again.status != exitFailure ||
		!strings.Contains(again.errs, "use it, or move the file away") {
		t.Error(again)
	}
	if keys := s.object("keys list %k")["keys"].([]any); len(keys) != 1 {
		t.Error(keys)
	}
	if err := os.WriteFile(filepath.Join(s.folder, "keys", "bad.key"), []byte("nonsense"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if result := s.run("keys list %k"); result.status != exitFailure ||
		!strings.Contains(result.out, "acme") || !strings.Contains(result.errs, "bad.key") {
		t.Error(result)
	}
}

// Two organisations sign a transaction, each in its own place, and it is submitted twice.
func TestPostSignSubmit(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	s.must("org add globex --plain %n --keys=%d/other")
	s.must("account open globex:mint --issuer %n --keys=%d/other")
	s.must("account open globex:cash %n --keys=%d/other")
	signed := s.object("tx post --posting acme:cash=-10 --posting globex:cash=10 --posting " +
		"globex:mint=-9:EUR --posting acme:vault=9:EUR --out %d/swap.tx %n %k")
	wantKeys(t, signed, "id file signed_by missing_signatures")
	if fmt.Sprint(signed["missing_signatures"]) != "[globex]" {
		t.Error(signed)
	}
	if early := s.run("tx submit %d/swap.tx %n %k"); early.status != exitFailure {
		t.Error(early)
	}
	first := s.object("tx submit %d/swap.tx --sign %n --keys=%d/other")
	if first["id"] != signed["id"] || first["state"] != "durable" {
		t.Error(first)
	}
	if text := s.must("account show globex:cash %n"); !strings.Contains(text, "10  unit") {
		t.Error(text)
	}
	file := `{"postings":[{"account":"acme:cash","amount":-5},{"account":"acme:vault","amount":"5"}],"records":[{"key":"acme:r","value":"x"}],"note":{"why":"test"}}`
	posted := s.object("tx post - %n %k", file)
	shown := s.object("tx status " + posted["id"].(string) +
		" --wait durable --proof --out %d/proof %n")
	wantKeys(t, shown, "id state block_hash signer signed_by postings records note proof")
	if info, err := os.Stat(filepath.Join(s.folder, "proof")); err != nil || info.Size() == 0 {
		t.Error(err)
	}
	if text := s.must("tx status " + posted["id"].(string) + " --proof %n"); !strings.Contains(text,
		"proof        holds") {
		t.Error(text)
	}
	s.must("tx put acme:r y %n %k")
	if value := s.must("tx get acme:r %n"); value != "y" {
		t.Error(value)
	}
	wantKeys(t, s.object("tx get acme:r %n"), "key value height")
	s.must("tx put acme:r --file - %n %k", "\xff\x00")
	if record := s.object("tx get acme:r %n"); record["value_base64"] != "/wA=" {
		t.Error(record)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	file := filepath.Join(s.folder, "f.jsonl")
	lines := `{"postings":[{"account":"coinbase","amount":-50},{"account":"bob","amount":50}],"txid":"a"}
{"postings":[{"account":"bob","amount":-20},{"account":"al","amount":20}]}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	command := "tx import %d/f.jsonl --plain --issuer coinbase --state=%d/state %n %k"
	if text := s.must(command); !strings.Contains(text, "imported 2 lines") ||
		!strings.Contains(text, "lines/s") {
		t.Error(text)
	}
	again := s.object(command)
	wantKeys(t, again, "lines imported failed skipped seconds lines_per_second complete failures")
	if again["skipped"] != 2.0 || again["complete"] != true {
		t.Error(again)
	}
	if text := s.must("account show import:bob %n"); !strings.Contains(text, "30  unit") {
		t.Error(text)
	}
	overdraft := `{"postings":[{"account":"al","amount":-21},{"account":"bob","amount":21}]}` + "\n"
	failed := s.run("tx import - --plain --org other --state=%d/state --json %n %k", overdraft)
	if failed.status != exitFailure || object(t, failed.out)["failed"] != 1.0 ||
		!strings.Contains(failed.errs, "line 1 failed (insufficient_funds)") {
		t.Error(failed)
	}
	if stopped := s.run("tx import - --plain --stop-on-error --state=%d/state %n %k",
		overdraft); stopped.status != exitFailure ||
		!strings.Contains(stopped.errs, "stopped at the first line") {
		t.Error(stopped)
	}
	if text := s.run("tx import - --plain %n %k", "no json\n"); text.status != exitFailure ||
		!strings.Contains(text.errs, "line 1") {
		t.Error(text)
	}
}

func TestBlocksAndStatus(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	if text := s.must("block %n"); !strings.Contains(text, "no blocks yet") &&
		!strings.Contains(text, "HASH") {
		t.Error(text)
	}
	s.bank()
	head := s.object("block head %n")
	wantKeys(t, head, "height hash previous time_ms epoch round level transaction_count "+
		"failed_count size_bytes transactions")
	item := head["transactions"].([]any)[0].(map[string]any)
	wantKeys(t, item, "id state signer postings posting_count record_count")
	if same := s.object("block " + head["hash"].(string) + " %n"); same["height"] !=
		head["height"] {
		t.Error(same)
	}
	if text := s.must("block " + fmt.Sprint(head["height"]) + " %n"); !strings.Contains(text,
		"100 unit from acme:mint to acme:cash") {
		t.Error(text)
	}
	if blocks := s.object("block --limit 2 %n"); len(blocks["blocks"].([]any)) != 2 ||
		blocks["more"] != true {
		t.Error(blocks)
	}
	report := s.object("status %n")
	wantKeys(t, report, "chain genesis_hash digraph degree tolerated_failures "+
		"transactions_total accounts_total asked_node nodes")
	wantKeys(t, report["nodes"].([]any)[0].(map[string]any),
		"index name answered mode api_address member suspected ordered_height stored_height "+
			"durable_height engine")
	if own := report["nodes"].([]any)[0].(map[string]any); own["recorded_height"] !=
		own["stored_height"] || own["records"].(float64) < 1 {
		t.Errorf("of records, a node shows %v", own)
	}
	s.cluster.Node(0).SetMode(reported.ModeHalted, "no majority")
	result := s.run("status %n")
	if result.status != exitFailure || result.errs != "" {
		t.Error(result)
	}
	for _, want := range []string{"halted", "node-0: no majority", "unreachable",
		"survives no failure now: the asked node takes no transactions: no majority"} {
		if !strings.Contains(result.out, want) {
			t.Errorf("no %q in\n%s", want, result.out)
		}
	}
	result = s.run("status --json %n")
	if shown := object(t, result.out); result.status != exitFailure ||
		shown["takes_writes"] != false || shown["survives_now"] != 0.0 {
		t.Error(result)
	}
	if failure := object(t, result.errs); !strings.Contains(fmt.Sprint(failure["error"]),
		"takes no transactions now: no majority") {
		t.Error(failure)
	}
}

// The number of failures that a ledger survives now depends on the members that order.
func TestSurvivesNow(t *testing.T) {
	t.Parallel()
	const ordering, starting = ledgerdv1.NodeMode_NODE_MODE_ORDERING,
		ledgerdv1.NodeMode_NODE_MODE_STARTING
	for _, test := range []struct {
		mode      ledgerdv1.NodeMode
		readsOnly bool
		suspected []uint32
		members   []uint32
		want      string
	}{
		{mode: ordering, members: []uint32{0, 1, 2, 3, 4}, want: "survives 2 failures"},
		{mode: starting, members: []uint32{0, 1, 2, 3, 4}, want: "survives 2 failures"},
		{mode: ordering, members: []uint32{0, 1, 2, 4},
			want: "survives 1 failure now, of 2: 4 of 5 members order"},
		{mode: ordering, members: []uint32{0, 1, 2, 4}, suspected: []uint32{4},
			want: "survives 0 failures now, of 2: 3 of 5 members order"},
		{mode: starting, readsOnly: true, want: "survives no failure now: the asked node takes " +
			"no transactions: it is starting"},
	} {
		report := clusterReport{ToleratedFailures: 2, Nodes: make([]nodeReport, 5)}
		report.judge(&ledgerdv1.NodeState{Mode: test.mode, ReadsOnly: test.readsOnly,
			Engine: &ledgerdv1.EngineState{Members: test.members, Suspected: test.suspected}})
		if got := report.survives(); got != test.want ||
			report.TakesWrites != (report.failure() == nil) {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// Commands that run until they are stopped end well when they are.
func TestFollowAndWatch(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	for _, test := range []struct{ line, want string }{
		{"block 1 --follow %n", "block 4"},
		{"block 1 --follow --json %n", `"height":4`},
		{"status --watch --every 100ms %n", "ordering"},
		{"status --watch --every 100ms --json %n", `"mode":"ordering"`},
	} {
		if result := s.longer(test.line, test.want); result.status != exitDone ||
			!strings.Contains(result.out, test.want) {
			t.Errorf("%s: no %q in %+v", test.line, test.want, result)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(100*time.Millisecond, cancel)
	defer timer.Stop()
	if result := s.runContext(ctx, "block --follow %n"); result.status != exitDone {
		t.Error(result)
	}
}

// Each wrong command line, and each failure, gets one sentence that says what to do, and its exit
// status.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	const nobody = " --node=http://127.0.0.1:1"
	id := strings.Repeat("ab", 32)
	for _, test := range []struct {
		line   string
		status int
		want   string
	}{
		{"blok", exitUsage, `did you mean "ledgerd block"?`},
		{"tx transfr", exitUsage, `did you mean "ledgerd tx transfer"?`},
		{"block --folow", exitUsage, "did you mean --follow?"},
		{"tx transfer a:b c:d -5", exitUsage, "-5 is no amount: amounts are above zero"},
		{"block --limit x", exitUsage, "--limit"},
		{"block nonsense", exitUsage, "names no block"},
		{"block " + id + " --follow", exitUsage, "not at a hash"},
		{"block --limit -1", exitUsage, "above zero"},
		{"status extra", exitUsage, "extra"},
		{"status --every 1ms", exitUsage, "at least 100ms"},
		{"status --node ftp://x", exitUsage, "is not a node's address"},
		{"status --timeout -1s", exitUsage, "--timeout"},
		{"tx transfer", exitUsage, "two accounts and an amount"},
		{"tx transfer acme:cash acme:vault 0", exitUsage, "above zero"},
		{"tx transfer acme:cash acme:vault 1.5", exitUsage, "decimal integer"},
		{"tx transfer acme:cash acme:vault 1 --amount 2", exitUsage, "leave one out"},
		{"tx transfer acme:cash acme:cash 1", exitUsage, "two accounts"},
		{"tx transfer cash acme:vault 1", exitUsage, "ORGANISATION:NAME"},
		{"tx transfer acme:cash acme:vault 1 --wait soon", exitUsage,
			"admitted, ordered, stored, durable"},
		{"tx transfer acme:cash acme:vault 1 bad/asset", exitUsage, "asset"},
		{"tx transfer acme:cash acme:vault 1000 %n %k", exitFailure, "insufficient_funds"},
		{"tx transfer acme:cash acme:nope 1 %n %k", exitFailure, "ledgerd account open"},
		{"tx transfer nobody:cash acme:cash 1 %n %k", exitFailure, "ledgerd keys create nobody"},
		{"tx transfer acme:cash acme:vault 1 %k" + nobody, exitFailure, "is the node running?"},
		{"tx post", exitUsage, "says nothing"},
		{"tx post --posting acme:cash", exitUsage, "ACCOUNT=AMOUNT"},
		{"tx post --posting acme:cash=x", exitUsage, "decimal integer"},
		{"tx post --posting acme:cash=-5 --posting acme:vault=4 %n %k", exitFailure, "unbalanced"},
		{"tx post %d/none.json", exitFailure, "none.json"},
		{"tx put acme:x", exitUsage, "name the value once"},
		{"tx put x y", exitUsage, "ORGANISATION:NAME"},
		{"tx get acme:none %n", exitFailure, "acme:none"},
		{"tx submit %d", exitFailure, "directory"},
		{"tx status abc", exitUsage, "64 hex digits"},
		{"tx status " + id + " %n", exitFailure, "abab"},
		{"tx status " + id + " --out x", exitUsage, "--proof"},
		{"tx import %d/none", exitFailure, "no such file"},
		{"tx import - --wait admitted", exitUsage, "ordered, stored or durable"},
		{"tx import -" + nobody, exitFailure, "is the node running?"},
		{"account show acme:none %n", exitFailure, "acme:none"},
		{"account open nobody", exitUsage, "ORGANISATION:NAME"},
		{"org show none %n", exitFailure, "none"},
		{"org add bad/name", exitUsage, "organisation"},
		{"org add acme --plain %n --keys=%d/elsewhere", exitFailure, "another key than yours"},
		{"keys show none %k", exitFailure, "ledgerd keys create none"},
		{"digraph", exitUsage, "--servers"},
	} {
		result := s.run(test.line)
		if result.status != test.status || !strings.Contains(result.errs, test.want) {
			t.Errorf("ledgerd %s: exit status %d instead of %d, or no %q in\n%s", test.line,
				result.status, test.status, test.want, result.errs)
		}
		if lines := strings.Count(result.errs, "\n"); lines > 2 ||
			strings.Contains(result.errs, "client: ") || strings.Contains(result.errs, "ledger: ") {
			t.Errorf("ledgerd %s: not one sentence:\n%s", test.line, result.errs)
		}
	}
}

// A following node that knows the nodes which take writes names them.
func TestWritersAreNamed(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	s.cluster.Node(0).SetMode(reported.ModeFollowing, "left out")
	s.doors = s.doors[:1]
	result := s.run("tx transfer acme:cash acme:vault 1 --timeout 10s %n %k")
	if result.status != exitFailure || !strings.Contains(result.errs,
		"--node http://127.0.0.1:8082") {
		t.Error(result)
	}
}

// Every command teaches: it has a text, an example that names it, and --json if it shows something.
func TestEveryCommandTeaches(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(command *cobra.Command) {
		if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
			return
		}
		if command.Long == "" || command.Short == "" ||
			!strings.Contains(command.Example, command.CommandPath()) {
			t.Errorf("%s has no text or no example", command.CommandPath())
		}
		runs := command.Name() == "start" // it shows only its log
		if !runs && !command.HasSubCommands() && command.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", command.CommandPath())
		}
		for _, each := range command.Commands() {
			visit(each)
		}
	}
	visit(newRootCommand())
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	for line, want := range map[string]string{
		"__complete account show %n acme:c": "acme:cash",
		"__complete tx transfer %n acme:m":  "acme:mint",
		"__complete org show %n a":          "acme",
		"__complete keys show %k a":         "acme",
		"__complete tx transfer --wait or":  "ordered",
	} {
		if text := s.must(line); !strings.Contains(text, want) {
			t.Errorf("%s: %s", line, text)
		}
	}
	if text := s.must("__complete account show --node=http://127.0.0.1:1 a"); strings.Contains(text,
		"acme") {
		t.Error(text)
	}
	for _, kind := range []string{"bash", "zsh", "fish", "powershell"} {
		if text := s.must("completion " + kind); !strings.Contains(text, "ledgerd") {
			t.Error(kind)
		}
	}
}

// Text from elsewhere cannot control the terminal.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a\x1b[2Jb\nc": "a�[2Jb�c", "déjà": "déjà",
		"123456789": "12345678…"} {
		if shown := sanitize(text, 8); shown != want {
			t.Errorf("%q is shown as %q", text, shown)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := table{header: []string{"A", "NUMBER", ""}, right: []bool{false, true}}
	rows.add("é", "1", "")
	rows.add("longer", "1234567", "x")
	var out bytes.Buffer
	if err := rows.write(&out); err != nil {
		t.Fatal(err)
	}
	if want := "A        NUMBER\né             1\nlonger  1234567  x\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// With --json a failure is one JSON object on standard error, with the same exit status.
func TestFailuresAsJSON(t *testing.T) {
	t.Parallel()
	s := newShell(t, 2)
	s.bank()
	for _, test := range []struct {
		line       string
		status     int
		text, next string
	}{
		{line: "account show acme:none --json %n", status: exitFailure, text: "acme:none"},
		{line: "account show acme:none %n --json=true", status: exitFailure, text: "acme:none"},
		{line: "block --json --folow", status: exitUsage, text: "did you mean --follow?",
			next: "see `ledgerd block --help`"},
		{line: "block --folow --json", status: exitUsage, text: "did you mean --follow?",
			next: "see `ledgerd block --help`"},
		{line: "block --limit -1 --json", status: exitUsage, text: "above zero",
			next: "see `ledgerd block --help`"},
		{line: "tx transfer --json", status: exitUsage, text: "two accounts",
			next: "see `ledgerd tx transfer --help`"},
	} {
		result := s.run(test.line)
		if result.status != test.status {
			t.Errorf("ledgerd %s: exit status %d, want %d", test.line, result.status, test.status)
		}
		failure := object(t, result.errs)
		next, _ := failure["next"].(string)
		if text := fmt.Sprint(failure["error"]); !strings.Contains(text, test.text) ||
			next != test.next {
			t.Errorf("ledgerd %s: %s", test.line, result.errs)
		}
	}
	for _, line := range []string{"account show acme:none %n --json=false",
		"block --folow -- --json"} {
		if result := s.run(line); !strings.HasPrefix(result.errs, "ledgerd: ") {
			t.Errorf("ledgerd %s: %s", line, result.errs)
		}
	}
	s.cluster.Node(0).SetMode(reported.ModeFollowing, "left out")
	s.doors = s.doors[:1]
	failure := object(t,
		s.run("tx transfer acme:cash acme:vault 1 --timeout 10s --json %n %k").errs)
	if failure["next"] != "these nodes take writes: --node http://127.0.0.1:8082" ||
		strings.Contains(fmt.Sprint(failure["error"]), "take writes") {
		t.Error(failure)
	}
}

// Opening an open account again succeeds and writes no block.
func TestOpenAccountAgain(t *testing.T) {
	t.Parallel()
	s := newShell(t, 1)
	s.bank()
	s.must("account open acme:named --alias petty %n %k")
	cash := s.object("account show acme:cash %n")["opened_height"]
	height := func() float64 { return s.object("block head %n")["height"].(float64) }
	before := height()
	since := fmt.Sprintf("acme:cash is open already, since block %v\n", cash)
	if text := s.must("account open acme:cash %n %k"); text != since {
		t.Error(text)
	}
	// Nothing is submitted, so no key is needed.
	if text := s.must("account open acme:cash acme:vault %n --keys=%d/empty"); strings.Count(text,
		"is open already, since block ") != 2 {
		t.Error(text)
	}
	s.must("account open acme:mint --issuer %n %k")
	s.must("account open acme:named --alias petty %n %k")
	again := s.object("account open acme:cash %n %k")
	if opened := fmt.Sprint(again["already_open"]); again["state"] != "unchanged" ||
		again["id"] != "" || opened != fmt.Sprintf("[map[account:acme:cash opened_height:%v]]",
		cash) {
		t.Error(again)
	}
	for _, test := range []struct{ line, want, next string }{
		{"acme:cash --issuer", "acme:cash is open already, since block ",
			"it is no issuer: leave --issuer out, or open an account of another name"},
		{"acme:mint", "acme:mint is open already, since block ", "it is an issuer: give --issuer"},
		{"acme:new acme:mint", "in another way", "give --issuer"},
		{"acme:cash --alias till", "in another way", "it has no alias: leave --alias out"},
		{"acme:named", "in another way", `its alias is "petty": give --alias "petty"`},
		{"acme:mint --alias till", "in another way",
			"it is an issuer: give --issuer; it has no alias: leave --alias out"},
	} {
		result := s.run("account open --json " + test.line + " %n %k")
		failure := object(t, result.errs)
		if result.status != exitFailure || result.out != "" ||
			!strings.Contains(fmt.Sprint(failure["error"]), test.want) ||
			!strings.Contains(fmt.Sprint(failure["next"]), test.next) {
			t.Errorf("%s: %+v", test.line, result)
		}
	}
	if now := height(); now != before {
		t.Errorf("block %v, then %v", before, now)
	}
	if result := s.run("account show acme:new %n"); result.status != exitFailure {
		t.Errorf("acme:new was opened: %+v", result)
	}
	if text := s.must("account open acme:new acme:cash %n %k"); !strings.HasPrefix(text, since) ||
		!strings.Contains(text, "durable in block") {
		t.Error(text)
	}
	opened := s.object("account open acme:newer acme:cash acme:vault %n %k")
	wantKeys(t, opened, "id state height index already_open")
	if left := opened["already_open"].([]any); opened["state"] != "durable" || len(left) != 2 {
		t.Error(opened)
	}
	fresh := s.object("account open acme:newest %n %k")
	if left, _ := fresh["already_open"].([]any); left == nil || len(left) != 0 {
		t.Error(fresh)
	}
}
