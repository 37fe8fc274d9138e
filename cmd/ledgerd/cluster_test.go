package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	reported "github.com/ledgerd/ledgerd/node/report"
)

// newClusterShell returns a shell whose ledger has an operator, with its key in %d/operator.key and
// another key in %d/other.key.
func newClusterShell(t *testing.T, nodes int) *shell {
	t.Helper()
	return newClusterShellOf(t, apitest.Options{Nodes: nodes})
}

func newClusterShellOf(t *testing.T, options apitest.Options) *shell {
	t.Helper()
	options.Genesis = *ledgertest.OperatedGenesis(options.Nodes)
	s := &shell{t: t, cluster: apitest.NewCluster(t, options), folder: t.TempDir()}
	for i := range options.Nodes {
		s.doors = append(s.doors, apitest.Serve(t, s.cluster.Node(i), api.Options{}))
	}
	for _, name := range []string{"operator", "other"} {
		if err := home.WriteKey(filepath.Join(s.folder, name+".key"),
			ledgertest.Key(name)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// via makes a command line of ledgerd cluster: it adds the nodes and the operator's key.
func (s *shell) via(line string) string {
	return "cluster " + line + " --operator %d/operator.key --via " + s.doors[0].URL
}

// admitDisk lets one member sign for the disk of another, once the members may change again.
func (s *shell) admitDisk(signer string, index ledger.MemberIndex) {
	s.t.Helper()
	node := s.cluster.Node(0)
	for {
		opened := node.Store()
		bundle := ledgertest.Admit(signer, opened.Genesis(), opened.Membership(), index,
			ledgertest.Disk(1), opened.Head().Height)
		if refusal := node.Admit(s.t.Context(), []*ledger.Bundle{bundle},
			false)[0]; refusal != nil {
			s.t.Fatal(refusal)
		}
		statuses, err := node.Wait(s.t.Context(), bundle.IDs(), reported.LevelDurable)
		if err != nil {
			s.t.Fatal(err)
		}
		switch statuses[0].Result.Code {
		case ledger.Applied:
			return
		case ledger.MembershipChanging:
		default:
			s.t.Fatal(statuses[0].Result)
		}
	}
}

func TestClusterJoinAndLeave(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 3)
	joined := s.object(s.via("join --home %d/node-3 --base-port 31000"))
	wantKeys(t, joined, "name home api fabric chain genesis_hash peer_id index address "+
		"already_member durable members membership_number height")
	if joined["name"] != "node-3" || joined["index"] != 3.0 ||
		joined["address"] != "127.0.0.1:31001" || joined["members"] != 4.0 ||
		joined["durable"] != true || joined["already_member"] != false {
		t.Errorf("joined: %v", joined)
	}
	at, err := home.Load(filepath.Join(s.folder, "node-3"))
	if err != nil {
		t.Fatal(err)
	}
	group := at.Membership()
	if at.Self != 3 || at.Name() != "node-3" || at.Genesis.Hash() != s.cluster.Genesis().Hash() ||
		at.FabricAddress() != "127.0.0.1:31001" ||
		at.Config.API.Listen != "127.0.0.1:31000" || group.Number != 1 || len(group.Members) != 4 {
		t.Errorf("the home: %+v", at)
	}
	again := s.must(s.via("join --home %d/node-3"))
	if !strings.Contains(again, "already, since block 1") ||
		!strings.Contains(again, "Next: ledgerd start --home") {
		t.Errorf("again: %s", again)
	}
	status := s.object("cluster status --via " + s.doors[1].URL)
	wantKeys(t, status, "chain genesis_hash asked_node membership_number membership_height "+
		"majority members former")
	member := status["members"].([]any)[3].(map[string]any)
	wantKeys(t, member, "index name state address public_key joined_height ordered_height "+
		"stored_height self")
	if status["majority"] != 3.0 || member["state"] != "never seen" ||
		member["address"] != "127.0.0.1:31001" {
		t.Errorf("status: %v", status)
	}
	if text := s.must("cluster status --via " + s.doors[1].URL); !strings.Contains(text,
		"4, of which 3 have to run") || !strings.Contains(text, "node-3  never seen") {
		t.Errorf("status: %s", text)
	}
	block := s.object("block 1 --node " + s.doors[0].URL)
	item := block["transactions"].([]any)[0].(map[string]any)
	if change := item["membership_change"].(map[string]any); change["kind"] != "join" ||
		change["name"] != "node-3" {
		t.Errorf("the block's transaction: %v", item)
	}
	if text := s.must("tx status " + item["id"].(string) + " --proof --node " +
		s.doors[0].URL); !strings.Contains(text, "node-3 joins, at 127.0.0.1:31001") ||
		!strings.Contains(text, "an operator") {
		t.Errorf("the transaction: %s", text)
	}
	s.admitDisk("node-0", 3)
	status = s.object("cluster status --via " + s.doors[1].URL)
	member = status["members"].([]any)[3].(map[string]any)
	wantKeys(t, member, "index name state address public_key joined_height ordered_height "+
		"stored_height self disk")
	if member["disk"] != ledgertest.Disk(1).String() || status["membership_number"] != 2.0 {
		t.Errorf("status with a disk: %v", status)
	}
	block = s.object("block head --node " + s.doors[0].URL)
	item = block["transactions"].([]any)[0].(map[string]any)
	change := item["membership_change"].(map[string]any)
	if change["kind"] != "admit" || change["index"] != 3.0 || change["disk"] != member["disk"] {
		t.Errorf("the block's transaction: %v", item)
	}
	named := "member 3 counts with disk " + ledgertest.Disk(1).String()
	for _, line := range []string{"block head", "tx status " + item["id"].(string) + " --proof"} {
		text := s.must(line + " --node " + s.doors[0].URL)
		if !strings.Contains(text, named) || !strings.Contains(text, "a member or operator") {
			t.Errorf("%s: %s", line, text)
		}
	}
	left := s.object(s.via("leave --name node-3"))
	wantKeys(t, left, "name index already_left durable members membership_number height")
	if left["index"] != 3.0 || left["members"] != 3.0 || left["already_left"] != false {
		t.Errorf("left: %v", left)
	}
	for _, line := range []string{"leave node-3", "leave --home %d/node-3", "leave --name node-3"} {
		if text := s.must(s.via(line)); !strings.Contains(text, "left already") {
			t.Errorf("%s: %s", line, text)
		}
	}
	if result := s.run(s.via("join --home %d/node-3")); result.status != exitFailure ||
		!strings.Contains(result.errs, "choose a new --home") {
		t.Errorf("a home that left: %+v", result)
	}
	if text := s.must(s.via("leave --name node-0")); !strings.Contains(text,
		"there are 2 members now") {
		t.Error(text)
	}
	// Nodes that have not been started yet make the running ones a minority.
	s.must(s.via("join --home %d/first --address 10.0.0.5 --base-port 31000 --fabric p2p-trusted"))
	if first, err := home.Load(filepath.Join(s.folder, "first")); err != nil ||
		first.Config.Fabric.Kind != fabric.P2PTrusted {
		t.Errorf("the fabric is not the one that was asked for: %v", err)
	}
	if result := s.run(s.via("join --home %d/second --address 10.0.0.5 --base-port 31000")); result.
		status != exitFailure || !strings.Contains(result.errs,
		"member first has the address 10.0.0.5:31001 already") {
		t.Errorf("an address that is taken: %+v", result)
	}
	if result := s.run(s.via("join --home %d/second")); result.status != exitFailure ||
		!strings.Contains(result.errs, "the ledger would stop") {
		t.Errorf("too many that do not run: %+v", result)
	}
	if _, err := os.Stat(filepath.Join(s.folder, "second")); err == nil {
		t.Error("a refused join left a home")
	}
	if result := s.run(s.via("leave --name node-1")); result.status != exitFailure ||
		!strings.Contains(result.errs, "--force") {
		t.Errorf("too few would be left: %+v", result)
	}
	s.must(s.via("leave --name node-1 --force"))
	if result := s.run(s.via("join --home %d/third")); result.status != exitFailure ||
		!strings.Contains(result.errs, "stands still") {
		t.Errorf("one of two runs: %+v", result)
	}
}

func TestClusterReplace(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 3)
	report := s.object(s.via("replace node-1 --home %d/new"))
	left, joined := report["left"].(map[string]any), report["joined"].(map[string]any)
	if left["name"] != "node-1" || joined["name"] != "new" || joined["index"] != 3.0 ||
		joined["members"] != 3.0 || joined["membership_number"] != 2.0 {
		t.Errorf("replaced: %v", report)
	}
	if text := s.must(s.via("replace node-1 --home %d/new")); !strings.Contains(text,
		"left already") || !strings.Contains(text, "new is member 3 of chain test already") {
		t.Errorf("again: %s", text)
	}
	// Replace a node by one of the same name, and repeat the command.
	for range 2 {
		report = s.object(s.via("replace new --home %d/newer --name new"))
		if joined := report["joined"].(map[string]any); joined["name"] != "new" ||
			joined["index"] != 4.0 || joined["members"] != 3.0 {
			t.Errorf("replaced under the same name: %v", report)
		}
	}
	if result := s.run(s.via("replace node-2 --home %d/newer --name node-0")); result.status !=
		exitFailure {
		t.Errorf("a name that another has: %+v", result)
	}
}

// A snapshot is believed by its certificate, from one node alone.
func TestClusterJoinWithCertifiedSnapshot(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 3)
	s.bank()
	result := s.run(s.via("join --home %d/node-3 --snapshot"))
	if result.status != exitDone || !strings.Contains(result.errs, "certified by a majority") {
		t.Errorf("%+v", result)
	}
	at, err := home.Load(filepath.Join(s.folder, "node-3"))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(at.Data(), at.Genesis, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if opened.Head() != s.cluster.Node(0).Store().Head() || opened.CertifiedHeight() == 0 {
		t.Errorf("the store has %+v, certified up to %d", opened.Head(), opened.CertifiedHeight())
	}
}

// A node that begins with a snapshot without a certificate has the current state of the ledger, if
// a majority confirms it.
func TestClusterJoinWithSnapshot(t *testing.T) {
	t.Parallel()
	s := newClusterShellOf(t, apitest.Options{Nodes: 3, Uncertified: true})
	s.bank()
	if result := s.run(s.via("join --home %d/node-3 --snapshot")); result.status != exitFailure ||
		!strings.Contains(result.errs, "is a member now") ||
		!strings.Contains(result.errs, "1 of the other 3 members confirm") {
		t.Errorf("only one node to ask: %+v", result)
	}
	all := s.via("join --home %d/node-3 --snapshot") + "," + s.doors[1].URL
	report := s.object(all)
	if report["already_member"] != true || report["snapshot_height"].(float64) < 5 {
		t.Errorf("%v", report)
	}
	at, err := home.Load(filepath.Join(s.folder, "node-3"))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(at.Data(), at.Genesis, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if opened.Head() != s.cluster.Node(0).Store().Head() ||
		opened.Absent() != opened.Head().Height {
		t.Errorf("the store has %+v", opened.Head())
	}
	if again := s.object(all); again["snapshot_height"] != nil {
		t.Errorf("over data: %v", again)
	}
}

// The last node that has some blocks is kept, before anything changes. If no node has all blocks, a
// new one begins with a snapshot even without the flag.
func TestClusterKeepsTheLastHolder(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 3)
	s.bank()
	s.cluster.Node(1).SetAbsent(3)
	s.cluster.Node(2).SetAbsent(4)
	for _, line := range []string{"leave --name node-0", "leave --name node-0 --force",
		"replace node-0 --home %d/new"} {
		result := s.run(s.via(line))
		if result.status != exitFailure || !strings.Contains(result.errs,
			"node-0 is the last member that answers and has the blocks from 1 to 3") {
			t.Errorf("%s: %+v", line, result)
		}
	}
	if _, err := os.Stat(filepath.Join(s.folder, "new")); err == nil {
		t.Error("a refused replacement left a home")
	}
	status := s.object("cluster status --via " + s.doors[1].URL)
	if status["membership_number"] != 0.0 {
		t.Errorf("the members changed: %v", status)
	}
	report := s.object("status --node " + s.doors[1].URL)
	shown := report["nodes"].([]any)[1].(map[string]any)
	backfill, _ := shown["backfill"].(map[string]any)
	if shown["absent_height"] != 3.0 || backfill["from"] != 1.0 || backfill["to"] != 3.0 ||
		backfill["snapshot"] != 4.0 {
		t.Errorf("status: %v", shown)
	}
	if text := s.must("status --node " + s.doors[1].URL); !strings.Contains(text,
		"node-1 began with block 4: it fetches the blocks from 1 to 3 from node-0") {
		t.Errorf("status: %s", text)
	}
	// Node 2 has no blocks that others lack.
	s.must(s.via("leave --name node-2"))
	s.cluster.Node(0).SetAbsent(3)
	joining := s.via("join --home %d/node-3") + "," + s.doors[1].URL
	result := s.run(joining)
	if result.status != 0 || !strings.Contains(result.errs, "begins with a snapshot") ||
		!strings.Contains(result.out, "ledger   begins with block") {
		t.Errorf("joining where no node has all blocks: %+v", result)
	}
	// The blocks of a node that is away are unknown.
	if result := s.run(s.via("leave --name node-3")); result.status != exitFailure ||
		!strings.Contains(result.errs, "node-3, which does not answer, may have them") {
		t.Errorf("one that is away: %+v", result)
	}
	s.must(s.via("leave --name node-3 --force"))
}

// A command that was interrupted goes on where it was.
func TestClusterJoinGoesOn(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 3)
	dir := filepath.Join(s.folder, "node-3")
	s.must(s.via("join --home %d/node-3"))
	before, err := home.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, home.MembershipFile)); err != nil {
		t.Fatal(err)
	}
	report := s.object(s.via("join --home %d/node-3"))
	after, err := home.Load(dir)
	if err != nil || !after.Key.Equal(before.Key) || after.Self != 3 ||
		report["already_member"] != true {
		t.Errorf("%v, %v", report, err)
	}
	// The home was made, but the change never ordered: the port in the home counts.
	unfinished, err := home.CreateJoining(filepath.Join(s.folder, "node-4"), before.Config,
		s.cluster.Genesis(), ledgertest.Key("node-4"))
	if err != nil {
		t.Fatal(err)
	}
	if result := s.run(s.via("join --home %d/node-4 --base-port 7")); result.status !=
		exitFailure || !strings.Contains(result.errs, "--base-port") {
		t.Errorf("another port than the home's: %+v", result)
	}
	s.must(s.via("leave --name node-3"))
	if report := s.object(s.via("join --home %d/node-4")); report["index"] != 4.0 ||
		report["address"] != unfinished.Config.Fabric.Listen {
		t.Errorf("%v", report)
	}
}

func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	foreign, err := testnet.Make(testnet.Layout{Dir: filepath.Join(s.folder, "net"), Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	url := s.doors[0].URL
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	for _, test := range []struct {
		line   string
		status int
		says   string
	}{
		{"cluster join --via " + url + " --operator %d/operator.key", exitUsage,
			"--home is missing"},
		{"cluster join --home %d/a --via " + url, exitUsage, "--operator is missing"},
		{s.via("join --home %d/a --name a/b"), exitUsage, "--name"},
		{s.via("join --home %d/a --base-port 65535"), exitUsage, "--base-port"},
		{s.via("join --home %d/a --address 0.0.0.0"), exitUsage, "--address"},
		{s.via("join --home %d/a --address 10.0.0.5:99"), exitUsage, "without a port"},
		{s.via("join --home %d/a --fabric pigeon"), exitUsage, "p2p-trusted"},
		{s.via("join %d/a"), exitUsage, "with --home, for example"},
		{s.via("join --home %d/a --base-port " + port), exitFailure, "port " + port + " is in use"},
		{s.via("replace node-0 --home %d/a --base-port " + port), exitFailure,
			"port " + port + " is in use"},
		{s.via("replace --home %d/a"), exitUsage, "which one node"},
		{s.via("leave node-0 node-1"), exitUsage, "one node leaves at a time"},
		{s.via("leave node-0 --name node-1"), exitUsage, "one node leaves at a time"},
		{s.via("join --home %d/a --genesis abc"), exitUsage, "64 hex digits"},
		{s.via("join --home %d/a --genesis " + ledger.Hash{1}.String()), exitFailure,
			"ask a node of the right chain"},
		{"cluster join --home %d/a --via " + url + " --operator %d/other.key", exitFailure,
			"no operator's key"},
		{"cluster join --home %d/a --via " + url + " --operator %d/none.key", exitFailure,
			"none.key"},
		{s.via("join --home %d/a --name node-0"), exitFailure, "choose another --name"},
		{s.via("join --home " + foreign[0].Dir), exitFailure, "another chain"},
		{s.via("leave"), exitUsage, "--name NAME or by --home DIR"},
		{s.via("leave --name node-7"), exitFailure, "its members are node-0"},
		{s.via("leave --home " + foreign[0].Dir), exitFailure, "no member of chain test"},
		{s.via("leave --name node-0"), exitFailure, "let another node join first"},
		{s.via("replace node-0 --home %d/b"), exitFailure, "let another node join first"},
		{"cluster status --via " + url + " --home %d/net/node-0", exitUsage, "leave --via out"},
		{"cluster status --home %d/nowhere", exitFailure, "ledgerd testnet"},
		{"cluster start", exitUsage, "there is no command"},
		{"cluster staus --via " + url, exitUsage, `did you mean "ledgerd cluster status"`},
		{"statment acme:cash --node " + url, exitUsage, `no command "ledgerd statment"`},
	} {
		result := s.run(test.line)
		if result.status != test.status || !strings.Contains(result.errs, test.says) {
			t.Errorf("ledgerd %s: exit status %d\n%s", test.line, result.status, result.errs)
		}
	}
	if _, err := os.Stat(filepath.Join(s.folder, "a")); err == nil {
		t.Error("a refused join left a home")
	}
}

// A chain without operators says so.
func TestClusterWithoutOperators(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Operators = nil
	s.cluster = apitest.NewCluster(t, apitest.Options{Genesis: *genesis})
	s.doors = []*apitest.TestServer{apitest.Serve(t, s.cluster.Node(0), api.Options{})}
	if result := s.run(s.via("join --home %d/a")); result.status != exitFailure ||
		!strings.Contains(result.errs, "no operators") {
		t.Errorf("%+v", result)
	}
}

// If the chain reserves registration to operators, an operator has to sign.
func TestRegistrationByOperator(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	genesis := ledgertest.OperatedGenesis(1)
	genesis.RegistrationByOperator = true
	s.cluster = apitest.NewCluster(t, apitest.Options{Genesis: *genesis})
	s.doors = []*apitest.TestServer{apitest.Serve(t, s.cluster.Node(0), api.Options{})}
	for line, says := range map[string]string{
		"org add acme --plain %n %k":                           "an operator has to sign",
		"org add acme --plain --operator %d/other.key %n %k":   "no operator's key",
		"org add acme --plain --operator %d/missing.key %n %k": "the operator's key",
	} {
		if result := s.run(line); result.status != exitFailure ||
			!strings.Contains(result.errs, says) {
			t.Errorf("%s: %+v", line, result)
		}
	}
	s.must("org add acme --plain --operator %d/operator.key %n %k")
}

// The JSON of a report has one object for each member.
func TestMembershipReport(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 2)
	var report membershipReport
	if err := json.Unmarshal([]byte(s.must("cluster status --json --via "+s.doors[0].URL)),
		&report); err != nil {
		t.Fatal(err)
	}
	if len(report.Members) != 2 || !report.Members[0].Self ||
		report.Members[1].State != "ordering" || report.Majority != 2 || len(report.Former) != 0 {
		t.Errorf("%+v", report)
	}
}
