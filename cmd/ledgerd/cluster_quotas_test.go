package main

import (
	"strings"
	"testing"
)

func TestClusterQuotas(t *testing.T) {
	t.Parallel()
	s := newClusterShell(t, 1)
	via := " --via=" + s.doors[0].URL
	wantKeys(t, s.object("cluster quotas show"+via), "number quotas")
	set := "cluster quotas set accounts=1 records=2 --operator "
	if result := s.run(set + "%d/other.key" + via); result.status != exitFailure ||
		!strings.Contains(result.errs, "no operator's key") {
		t.Errorf("%+v", result)
	}
	s.must(set + "%d/operator.key" + via)
	if text := s.must("block head %n"); !strings.Contains(text, "quotas or version") {
		t.Error(text)
	}
	s.must("cluster quotas set records=none pending=9 --operator %d/operator.key" + via)
	text := strings.Join(strings.Fields(s.must("cluster quotas show"+via)), " ")
	if text != "streams none accounts 1 assets none records none pending 9" {
		t.Error(text)
	}
	s.must("org add acme --plain %n %k")
	s.must("account open acme:cash %n %k")
	if result := s.run("account open acme:more %n %k"); result.status != exitFailure ||
		!strings.Contains(result.errs, "quota of accounts is used up (opening 1): acme:more") {
		t.Errorf("%+v", result)
	}
	if text := s.must("org show acme %n"); !strings.Contains(text, "1 of 1") {
		t.Error(text)
	}
	shown := s.object("org show acme %n")
	if use := shown["use"].(map[string]any); use["accounts"] != 1.0 || use["streams"] == 0.0 {
		t.Errorf("%v", shown)
	}
	// The operators stay as they are.
	if text := s.must("cluster operators list" + via); !strings.Contains(text, "1 of 1 operator") {
		t.Error(text)
	}
	for _, line := range []string{"cluster quotas set nothing=1", "cluster quotas set accounts=0",
		"cluster quotas set accounts", "cluster quotas set pending=-1"} {
		if result := s.run(line + " --operator %d/operator.key" + via); result.status != exitUsage {
			t.Errorf("%s: %+v", line, result)
		}
	}
}
