package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// newest is the newest version of a chain, as JSON has it.
const newest = float64(ledger.NewestVersion)

// The help says what each version brings.
func TestClusterUpgradeTeachesAllVersions(t *testing.T) {
	t.Parallel()
	help := newClusterUpgradeCommand().Long
	for version := ledger.FirstVersion; version <= ledger.NewestVersion; version++ {
		if !strings.Contains(help, fmt.Sprintf("\n  %-2d ", version)) {
			t.Errorf("the help does not tell of version %d", version)
		}
	}
}

func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	via := " --via=" + s.doors[0].URL
	version := func() any { return s.object("cluster status" + via)["version"] }
	if version() != 1.0 {
		t.Fatalf("the chain begins with version %v", version())
	}
	s.must("org add acme --plain %n %k")
	upgrade := "cluster upgrade --operator "
	s.refuses("no operator's key", upgrade+"%d/other.key"+via)
	s.must(upgrade + "%d/operator.key" + via)
	if text := s.must("block head %n"); !strings.Contains(text, "quotas or version") {
		t.Error(text)
	}
	if version() != newest {
		t.Errorf("version %v", version())
	}
	s.refuses("already: nothing to do", upgrade+"%d/operator.key"+via)
	s.refuses("already: nothing to do", upgrade+"%d/operator.key --to 2"+via)
	// What changes the charter afterwards leaves the version as it is.
	s.must("cluster quotas set accounts=9 --operator %d/operator.key" + via)
	if list := s.object("cluster operators list" + via); list["version"] != newest {
		t.Errorf("%v", list)
	}
	s.must("account open acme:cash %n %k")
	for _, to := range []string{"1", fmt.Sprint(ledger.NewestVersion + 1), "0", "-1"} {
		line := upgrade + "%d/operator.key --to " + to + via
		if result := s.run(line); result.status != exitUsage {
			t.Errorf("%s: %+v", line, result)
		}
	}
}

// TestUpgradeAsksAllPrograms: while one member cannot be asked, or has an older program, the
// version stays as it is.
func TestUpgradeAsksAllPrograms(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 2)
	via := " --via=" + s.doors[0].URL
	s.refuses("node-1 cannot be asked", "cluster upgrade --operator %d/operator.key"+via)
	if version := s.object("cluster status" + via)["version"]; version != 1.0 {
		t.Errorf("version %v", version)
	}
	s.must("cluster upgrade --force --operator %d/operator.key" + via)
	if version := s.object("cluster status" + via)["version"]; version != newest {
		t.Errorf("version %v", version)
	}
}

func TestKnownVersion(t *testing.T) {
	t.Parallel()
	for said, want := range map[uint32]int{0: 1, 1: 1, 2: 2, 9: 9} {
		if got := knownVersion(&ledgerdv1.ClusterState{NewestVersion: said}); got != want {
			t.Errorf("%d means version %d, want %d", said, got, want)
		}
	}
}
