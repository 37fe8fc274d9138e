package verbs

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
)

var messages = []message{
	{kind: messageAttach, call: 1, attachment: 7, name: "log",
		endpoint: endpoint{number: 17, sequence: 1<<24 - 1, mtu: 5,
			gid: [16]byte{10: 0xff, 11: 0xff, 12: 10}}},
	{kind: messageReply, call: 1, status: statusWelcome, permission: rdmanet.PermissionRead,
		memory: remoteMemory{base: 1 << 47, key: 99, size: 1 << 30}},
	{kind: messageLane, call: 2, name: strings.Repeat("n", rdmanet.LaneNameMax), receiver: 5,
		lostBy: 4, opening: 3, lost: 2, frameMax: 1 << 24, windowBytes: 1 << 25,
		windowFrames: 1 << 16},
	{kind: messageEnded, name: "lane", endpoint: endpoint{number: 17}},
	{kind: messageReply, call: 2, status: statusRestarted, next: 9, delivered: 8},
	{kind: messageRevoked, attachment: 1 << 63},
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err == nil && !bytes.Equal(m.append(nil), b) || err != nil &&
			!errors.Is(err, errProtocol) {
			t.Fatalf("%x gave %+v, error %v", b, m, err)
		}
	})
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, want := range messages {
		if got, err := parseMessage(want.append(nil)); err != nil || got != want {
			t.Errorf("%+v came back as %+v, error %v", want, got, err)
		}
	}
	for name, m := range map[string]message{
		"no kind":                 {},
		"an unknown status":       {kind: messageReply, status: statusRestarted + 1},
		"an unknown permission":   {kind: messageReply, permission: 3},
		"a number of 25 bits":     {kind: messageAttach, endpoint: endpoint{number: 1 << 24}},
		"more taken than offered": {kind: messageReply, next: 1, delivered: 2},
		"memory without end":      {kind: messageReply, memory: remoteMemory{size: 1 << 40}},
		"a name too long":         {kind: messageLane, name: strings.Repeat("n", nameMax+1)},
	} {
		if got, err := parseMessage(m.append(nil)); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for bytes, good := range map[int]bool{0: true, ringMin: true, ringMin / 2: false,
		ringMin * 3: false, ringMax: true, 2 * ringMax: false, -1: false} {
		if err := (Options{RingBytes: bytes}).withDefaults().check(); (err == nil) != good {
			t.Errorf("a ring of %d bytes: error %v", bytes, err)
		}
	}
	for method, good := range map[Permissions]bool{"": true, PermissionsAuto: true,
		PermissionsQueuePair: true, PermissionsAccessFlags: true, PermissionsMemoryWindow: true,
		"hope": false} {
		if err := (Options{Permissions: method}).withDefaults().check(); (err == nil) != good {
			t.Errorf("permissions by %q: error %v", method, err)
		}
	}
}
