package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/home"
)

func TestClusterOperators(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	via := " --via=" + s.doors[0].URL
	for _, name := range []string{"b", "c"} {
		if err := home.WriteKey(filepath.Join(s.folder, name+".key"),
			ledgertest.Key(name)); err != nil {
			t.Fatal(err)
		}
	}
	wantKeys(t, s.object("cluster operators list"+via), "number operators threshold registration")
	set := "cluster operators set %d/operator.key %d/b.key %d/c.key --threshold 2 " +
		"--registration operators"
	if result := s.run(set + " --operator %d/b.key" + via); result.status != exitFailure ||
		!strings.Contains(result.errs, "no operator's key") {
		t.Errorf("%+v", result)
	}
	s.must(set + " --operator %d/operator.key" + via)
	block := s.object("block head %n")
	change := block["transactions"].([]any)[0].(map[string]any)
	if text := s.must("block head %n"); change["charter"] != true ||
		!strings.Contains(text, "changes the operators, quotas or version") {
		t.Errorf("%v: %s", change, text)
	}
	if text := s.must("tx status " + change["id"].(string) + " %n"); !strings.Contains(text,
		"2 of 3 operators sign, registrations, too") {
		t.Error(text)
	}
	listed := s.object("cluster operators list" + via)
	if fmt.Sprintln(listed["threshold"], listed["registration"],
		len(listed["operators"].([]any))) !=
		"2 operators 3\n" {
		t.Error(listed)
	}
	// One signature is not enough any more.
	if result := s.run("cluster leave node-0 --operator %d/operator.key" + via); result.status !=
		exitFailure || !strings.Contains(result.errs, "2 of the 3 operators") {
		t.Errorf("%+v", result)
	}
	if result := s.run("org add acme --plain --operator %d/b.key %n %k"); result.status !=
		exitFailure || !strings.Contains(result.errs, "2 of the 3 operators") {
		t.Errorf("%+v", result)
	}
	s.must("org add acme --plain --operator %d/b.key --operator %d/c.key %n %k")
	// Each encrypted key opens with the passphrase that is its own.
	first, second := s.passphraseFile("first", "open sesame"), s.passphraseFile("second", "other")
	s.must("keys passphrase --file %d/b.key --new-passphrase-file " + first)
	s.must("keys passphrase --file %d/c.key --new-passphrase-file " + second)
	both := "org add zeta --plain --operator %d/b.key,%d/c.key %n %k --passphrase-file "
	s.refuses("wrong passphrase", both+first)
	s.must(both + first + "," + second)
	s.must("keys passphrase --file %d/c.key --plain --passphrase-file " + second)
	// Signatures may come one after another, in a file. A list of operators needs no passphrase.
	s.must("cluster operators set %d/b.key --out %d/change --operator %d/b.key" + via +
		" --passphrase-file " + first)
	if result := s.run("tx submit %d/change %n"); result.status == exitDone {
		t.Errorf("%+v", result)
	}
	s.must("tx submit %d/change --operator %d/c.key %n")
	if text := s.must("cluster operators list" + via); !strings.Contains(text, "1 of 1 operator") {
		t.Error(text)
	}
	if result := s.run("cluster operators set %d/b.key --threshold 2 --operator %d/b.key" +
		via + " --passphrase-file " + first); result.status != exitUsage {
		t.Errorf("%+v", result)
	}
}
