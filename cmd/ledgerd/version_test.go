package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// TestVersion stamps a version and a commit as scripts/release does. It changes what the linker
// sets, so it is not parallel.
func TestVersion(t *testing.T) {
	show := func(arguments ...string) string {
		t.Helper()
		result := ledgerd(t, append([]string{"version"}, arguments...)...)
		if result.status != exitDone {
			t.Fatalf("%+v", result)
		}
		return result.out
	}
	build := runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if got := show(); !strings.HasPrefix(got, "ledgerd development") ||
		!strings.HasSuffix(got, "\n"+build) || strings.Contains(got, "commit") {
		t.Errorf("without a stamp: %q", got)
	}
	version, commit = "v1.2.3", "c0ffee"
	t.Cleanup(func() { version, commit = "", "" })
	if got, want := show(), "ledgerd v1.2.3\ncommit c0ffee\n"+build; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var report versionReport
	if err := json.Unmarshal([]byte(show("--json")), &report); err != nil {
		t.Fatal(err)
	}
	if want := (versionReport{"v1.2.3", "c0ffee", runtime.Version(),
		runtime.GOOS + "/" + runtime.GOARCH}); report != want {
		t.Errorf("got %+v, want %+v", report, want)
	}
}
