package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/doors"
	"github.com/ledgerd/ledgerd/node/home"
)

// writePair writes a certificate for hosts as NAME.crt and NAME.key.
func writePair(t *testing.T, dir, name string, hosts ...string) (certificate, key string) {
	t.Helper()
	text, keyText, err := doors.SelfSigned(hosts, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for path, content := range map[string][]byte{certificate: text, key: keyText} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// newSecureShell returns a shell as newClusterShell does, whose node serves TLS. Its certificate is
// %d/ledger.crt.
func newSecureShell(t *testing.T, config doors.Config) *shell {
	t.Helper()
	s := newClusterShell(t, 1)
	config.Certificate, config.Key = writePair(t, s.folder, "ledger", "127.0.0.1")
	gates, err := doors.New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.doors = []*apitest.TestServer{apitest.Serve(t, s.cluster.Node(0), api.Options{Doors: gates})}
	return s
}

// A wrong scheme and a bad certificate get an error that says what to write.
func TestDoorErrors(t *testing.T) {
	t.Parallel()
	s := newSecureShell(t, doors.Config{})
	address := strings.TrimPrefix(s.doors[0].URL, "https://")
	if text := s.must("status --ca %d/ledger.crt --node https://" + address); !strings.Contains(
		text, "node-0") {
		t.Errorf("status: %s", text)
	}
	plain := newClusterShell(t, 1)
	cases := []struct{ line, advice string }{
		{"status --node http://" + address, "use https://" + address},
		{"status --node " + address, "use https://" + address},
		{"status --node https://" + address, "--ca FILE"},
		{"status --node https://localhost" + address[strings.Index(address, ":"):] +
			" --ca %d/ledger.crt", "is for other names"},
		{"status --node https://" + address + " --ca %d/ledger.key", "no certificate"},
		{"status --node https://" + address + " --cert %d/ledger.crt", "needs its key"},
		{"export --blocks --node https://" + address, "--ca FILE"},
		{"cluster status --via https://" + address, "--ca FILE"},
		{"status --node " + strings.Replace(plain.doors[0].URL, "http:", "https:", 1),
			"serves no TLS: use http://"},
	}
	for _, c := range cases {
		if done := s.run(c.line); done.status == 0 || !strings.Contains(done.errs, c.advice) {
			t.Errorf("%s: %d %s", c.line, done.status, done.errs)
		}
	}
	if done := s.run("status --json --node https://" + address); !strings.Contains(done.errs,
		`"next":"name the authority's certificate with --ca FILE`) {
		t.Errorf("as JSON: %s", done.errs)
	}
}

// A node that joins over TLS serves TLS.
func TestJoinOverTLS(t *testing.T) {
	t.Parallel()
	s := newSecureShell(t, doors.Config{})
	line := s.via("join --home %d/second") + " --ca %d/ledger.crt"
	joined := s.object(line)
	at, err := home.Load(filepath.Join(s.folder, "second"))
	if err != nil {
		t.Fatal(err)
	}
	if joined["self_signed"] != true || !strings.HasPrefix(joined["api"].(string), "https://") ||
		joined["certificate"] != filepath.Join(s.folder, "second", "tls.crt") ||
		at.Config.API.Certificate != "tls.crt" {
		t.Errorf("joined: %v, %+v", joined, at.Config.API)
	}
	if _, err := doors.New(doors.Config{Certificate: at.File(at.Config.API.Certificate),
		Key: at.File(at.Config.API.Key)}); err != nil {
		t.Error(err)
	}
	if text := s.must(line); !strings.Contains(text, "already") {
		t.Errorf("again: %s", text)
	}
	s.admitDisk("node-0", 1)
	_, _ = writePair(t, s.folder, "own", "third.example")
	joined = s.object(s.via("join --home %d/third --force") +
		" --ca %d/ledger.crt --api-cert %d/own.crt --api-key %d/own.key")
	text, err := os.ReadFile(filepath.Join(s.folder, "third", "tls.crt"))
	own, ownErr := os.ReadFile(filepath.Join(s.folder, "own.crt"))
	if err != nil || ownErr != nil || string(text) != string(own) || joined["self_signed"] == true {
		t.Errorf("joined: %v, %v, %v", joined, err, ownErr)
	}
}

// checkReload changes the configuration of a running node, and tells it so with SIGHUP.
func checkReload(t *testing.T, dir string, running *running) {
	t.Helper()
	url := running.out.await(t, `ready (http\S+)`)
	path := filepath.Join(dir, home.ConfigFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(from, to, says string) {
		t.Helper()
		text := strings.Replace(string(before), from, to, 1)
		if text == string(before) && from != to {
			t.Fatalf("the configuration has no %q", from)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		running.errs.await(t, says)
	}
	status := func(host string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if status("books.example") != http.StatusMisdirectedRequest {
		t.Error("a foreign host is served")
	}
	hosts := "# hosts = [\"books.example\"]"
	reload(hosts, "hosts = [\"https://books.example\"]", "SIGHUP changed nothing.*is no host")
	reload(hosts, "hosts = [\"books.example\"]\ncalls_per_second = 7",
		"(?s)read again.*next start.*api.calls_per_second")
	if status("books.example") != http.StatusOK {
		t.Error("a host that was added is not served")
	}
	reload(`level = "info"`, `level = "warn"`, "")
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A node that serves identified callers refuses others, and commands say what is missing. A caller
// that is added or removed needs no restart.
func TestAccessCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	must(t, "init", "--plain", "--registration", "open", "--home", dir, "--listen", "127.0.0.1:0",
		"--fabric-address", "127.0.0.1:0")
	added := object(t, must(t, "access", "add", "ops", "--home", dir, "--role", "operator",
		"--json"))
	token, _ := added["token"].(string)
	refuses(t, exitUsage, "needs the name", "access", "add", "a", "--home", dir, "--role",
		"organisation")
	refuses(t, exitUsage, "role", "access", "add", "a", "--home", dir)
	refuses(t, exitUsage, "there twice", "access", "add", "ops", "--home", dir, "--role", "auditor")
	path := filepath.Join(dir, home.ConfigFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	guarded := strings.Replace(string(text), "[admin]",
		"identities = \"identities.json\"\n\n[admin]", 1)
	if err := os.WriteFile(path, []byte(guarded), 0o600); err != nil {
		t.Fatal(err)
	}
	node := begin(t, "start", "--home", dir)
	url := node.out.await(t, `ready (http\S+)`)
	refuses(t, exitFailure, "--token TOKEN", "status", "--node", url)
	refuses(t, exitFailure, "token is unknown", "status", "--node", url, "--token", "wrong")
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{token, "@" + file} {
		await(t, func() bool {
			return ledgerd(t, "status", "--node", url, "--token", shown).status == exitDone
		})
	}
	audit := object(t, must(t, "access", "add", "audit", "--home", dir, "--role", "auditor",
		"--json"))
	await(t, func() bool {
		return ledgerd(t, "export", "--blocks", "--node", url, "--token",
			audit["token"].(string)).status == exitDone
	})
	if list := must(t, "access", "list", "--home", dir); !strings.Contains(list, "audit") ||
		strings.Contains(list, token) {
		t.Errorf("list: %s", list)
	}
	must(t, "access", "remove", "audit", "--home", dir)
	await(t, func() bool {
		return ledgerd(t, "status", "--node", url, "--token",
			audit["token"].(string)).status == exitFailure
	})
	refuses(t, exitFailure, "no identity", "access", "remove", "audit", "--home", dir)
	refuses(t, exitUsage, "readable on the way", "status", "--node", "http://192.0.2.1:1",
		"--token", token)
	node.end(t)
}

// A node that others can reach does not start without a choice.
func TestStartWantsAChoice(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	must(t, "init", "--plain", "--registration", "open", "--home", dir, "--listen", "0.0.0.0:0",
		"--fabric-address", "127.0.0.1:0")
	refuses(t, exitFailure, `write access = "public"`, "start", "--home", dir)
	path := filepath.Join(dir, home.ConfigFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	chosen := strings.Replace(string(text), "[admin]", "access = \"public\"\n\n[admin]", 1)
	if err := os.WriteFile(path, []byte(chosen), 0o600); err != nil {
		t.Fatal(err)
	}
	node := begin(t, "start", "--home", dir)
	node.out.await(t, `ready (http\S+)`)
	node.end(t)
}

// Every command that calls nodes takes the flags that doors ask for.
func TestEveryCallerHasCredentials(t *testing.T) {
	t.Parallel()
	var visit func(command *cobra.Command)
	found := 0
	visit = func(command *cobra.Command) {
		flags := command.Flags()
		// The nodes of a testnet, which --node selects there, listen on loopback and serve every
		// caller.
		testnet := strings.HasPrefix(command.CommandPath(), "ledgerd testnet")
		if (flags.Lookup("node") != nil || flags.Lookup("via") != nil) && !testnet {
			found++
			for _, name := range []string{"ca", "cert", "key", "token"} {
				if flags.Lookup(name) == nil {
					t.Errorf("%s has no --%s", command.CommandPath(), name)
				}
			}
		}
		for _, below := range command.Commands() {
			visit(below)
		}
	}
	visit(newRootCommand())
	if found < 15 {
		t.Errorf("only %d commands call nodes", found)
	}
}
