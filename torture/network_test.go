//go:build linux

package torture

import (
	"fmt"
	"os/exec"
	"testing"
)

// A separate machine, as far as the network is concerned, is a network namespace with a cable: a
// pair of virtual interfaces. The namespace is mounted in the tests' own mounts, and so ends with
// them.

const (
	// farHost is the machine at the far end of the cable. nearHost is the near end.
	farHost, nearHost = "10.231.77.2", "10.231.77.1"
	farName           = "ledgerd-torture-far"
	farEnd, nearEnd   = "far-ledgerd", "near-ledgerd"
)

// newFarMachine makes a namespace with a cable to it. It skips the test if this machine does not
// allow that.
func newFarMachine(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { _ = ip("netns", "delete", farName) }) // it may not exist
	for _, command := range [][]string{
		{"netns", "add", farName},
		{"link", "add", nearEnd, "type", "veth", "peer", "name", farEnd, "netns", farName},
		{"addr", "add", nearHost + "/30", "dev", nearEnd},
		{"link", "set", nearEnd, "up"},
		{"-n", farName, "addr", "add", farHost + "/30", "dev", farEnd},
		{"-n", farName, "link", "set", "lo", "up"},
		{"-n", farName, "link", "set", farEnd, "up"},
	} {
		if err := ip(command...); err != nil {
			t.Skipf("a machine of its own takes root, for a network namespace: %v", err)
		}
	}
}

func ip(arguments ...string) error {
	if output, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", arguments, err, output)
	}
	return nil
}

// cable pulls or plugs the cable of the far machine.
func (s *shard) cable(plugged bool) {
	s.t.Helper()
	state := "down"
	if plugged {
		state = "up"
	}
	if err := ip("-n", farName, "link", "set", farEnd, state); err != nil {
		s.t.Fatal(err)
	}
}
