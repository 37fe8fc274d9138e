package fabric

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		if parsed, err := Parse(string(kind)); err != nil || parsed != kind {
			t.Errorf("%q gives %q, %v", kind, parsed, err)
		}
	}
	for _, name := range []string{"", "tcp", "P2P", "p2p "} {
		if _, err := Parse(name); !errors.Is(err, ErrKind) ||
			!strings.Contains(err.Error(), "p2p-trusted") {
			t.Errorf("%q gives %v", name, err)
		}
	}
}

// Hosts of a kind between processes carry a frame, on the kinds that every machine has.
func TestOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{P2P, P2PTrusted, SharedMemory} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var hosts [2]Host
			members := map[rdmanet.PeerID]string{}
			for i := range hosts {
				key, err := p2p.NewIdentity(rand.Reader)
				if err != nil {
					t.Fatal(err)
				}
				if hosts[i], err = Open(kind, Options{Key: key,
					Listen: "127.0.0.1:0"}); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = hosts[i].Close(ctx) }()
				members[hosts[i].ID()] = hosts[i].Address()
			}
			for _, host := range hosts {
				if err := host.SetMembers(members); err != nil {
					t.Fatal(err)
				}
			}
			heard := make(chan string, 1)
			if err := hosts[1].Receive("words", func(_ rdmanet.Peer, frames [][]byte) {
				heard <- string(frames[0])
			}); err != nil {
				t.Fatal(err)
			}
			lane, err := hosts[0].Lane(hosts[1].ID(), "words")
			if err != nil {
				t.Fatal(err)
			}
			if err := lane.Send(ctx, []byte("good day")); err != nil {
				t.Fatal(err)
			}
			select {
			case words := <-heard:
				if words != "good day" {
					t.Errorf("heard %q", words)
				}
			case <-ctx.Done():
				t.Error("nothing was heard")
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	if host, err := Open(Memory, Options{}); host != nil || !errors.Is(err, ErrOneProcess) {
		t.Errorf("memory: %v, %v", host, err)
	}
	if host, err := Open("tcp", Options{}); host != nil || !errors.Is(err, ErrKind) {
		t.Errorf("tcp: %v, %v", host, err)
	}
	if host, err := Open(P2P, Options{Listen: "127.0.0.1:0"}); host != nil || err == nil {
		t.Errorf("p2p without a key: %v, %v", host, err)
	}
	for _, kind := range []Kind{P2P, P2PTrusted, SharedMemory} {
		if err := Check(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := Check("tcp"); !errors.Is(err, ErrKind) {
		t.Errorf("tcp: %v", err)
	}
	if len(missingForVerbs()) > 0 {
		if host, err := Open(Verbs, Options{}); host != nil || !errors.Is(err, ErrUnusable) ||
			!errors.Is(Check(Verbs), ErrUnusable) {
			t.Errorf("verbs: %v, %v", host, err)
		}
	}
}

func TestProviders(t *testing.T) {
	t.Parallel()
	var kinds []Kind
	for _, provider := range Providers() {
		kinds = append(kinds, provider.Kind)
		if provider.Usable != (len(provider.Missing) == 0) || provider.About == "" {
			t.Errorf("%+v", provider)
		}
	}
	if !slices.Equal(kinds, Kinds()) {
		t.Errorf("%v", kinds)
	}
}

// rdmaMachine is a machine's file system with one device, as Linux shows it.
func rdmaMachine(t *testing.T, changes map[string]string) machine {
	t.Helper()
	files := map[string]string{
		"usr/lib/x86_64-linux-gnu/libibverbs.so.1":     "",
		"sys/class/infiniband/rxe0/ports/1/state":      "4: ACTIVE\n",
		"sys/class/infiniband/rxe0/ports/1/link_layer": "Ethernet\n",
		"sys/class/infiniband/rxe0/ports/1/rate":       "2.5 Gb/sec (1X SDR)\n",
		"sys/class/infiniband/rxe0/ports/1/gids/0": "fe80:0000:0000:0000:" +
			"a8aa:aaff:feaa:aaaa\n",
		"sys/class/infiniband/rxe0/ports/1/gids/1": "0000:0000:0000:0000:" +
			"0000:ffff:0a4d:0001\n",
		"sys/class/infiniband/rxe0/ports/1/gids/2": "0000:0000:0000:0000:" +
			"0000:0000:0000:0000\n",
		"sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1": "RoCE v2\n",
		"sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1": "dummy0\n",
		"sys/class/infiniband_verbs/abi_version":              "6\n",
		"sys/class/infiniband_verbs/uverbs0/ibdev":            "rxe0\n",
		"dev/infiniband/uverbs0":                              "",
		"proc/self/limits": "Limit                     Soft " +
			"Limit           Hard Limit           Units     \nMax locked memory         " +
			"unlimited            unlimited            bytes     \n",
	}
	for name, text := range changes {
		if text == gone {
			delete(files, name)
			continue
		}
		files[name] = text
	}
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return machine{root: root}
}

// gone marks a file that does not exist.
const gone = "\x00"

func TestDevices(t *testing.T) {
	t.Parallel()
	m := rdmaMachine(t, nil)
	devices, err := m.devices()
	if err != nil || len(devices) != 1 || len(devices[0].Ports) != 1 {
		t.Fatalf("%+v, %v", devices, err)
	}
	device, port := devices[0], devices[0].Ports[0]
	if device.Name != "rxe0" || device.File != filepath.Join(m.root, "dev/infiniband/uverbs0") ||
		!device.Openable || !device.Active() {
		t.Errorf("%+v", device)
	}
	if port.Number != 1 || port.Link != "Ethernet" || port.Rate != "2.5 Gb/sec (1X SDR)" ||
		len(port.GIDs) != 2 {
		t.Fatalf("%+v", port)
	}
	if gid := port.GIDs[1]; gid.Index != 1 || gid.Address.String() != "10.77.0.1" ||
		gid.Type != "RoCE v2" || gid.Interface != "dummy0" {
		t.Errorf("%+v", gid)
	}
	if gid := port.GIDs[0]; gid.Address.String() != "fe80::a8aa:aaff:feaa:aaaa" || gid.Type != "" {
		t.Errorf("%+v", gid)
	}
}

// Everything that is missing is listed with its remedy. Nothing is listed if nothing is missing.
func TestMissing(t *testing.T) {
	t.Parallel()
	const folder = "sys/class/infiniband/rxe0/ports/1/"
	for name, test := range map[string]struct {
		changes map[string]string
		without bool // without the build tag
		says    []string
	}{
		"nothing": {},
		"the tag": {without: true, says: []string{"-tags verbs"}},
		"the library": {changes: map[string]string{
			"usr/lib/x86_64-linux-gnu/libibverbs.so.1": gone},
			says: []string{"apt-get install libibverbs-dev"}},
		"a device": {changes: map[string]string{
			folder + "state": gone, folder + "link_layer": gone, folder + "rate": gone,
			folder + "gids/0": gone, folder + "gids/1": gone, folder + "gids/2": gone,
			folder + "gid_attrs/types/1": gone, folder + "gid_attrs/ndevs/1": gone,
		}, says: []string{"modprobe rdma_rxe"}},
		"an active port": {changes: map[string]string{folder + "state": "1: DOWN\n"},
			says: []string{"rxe0 is active", "ip link set"}},
		"the file": {changes: map[string]string{"dev/infiniband/uverbs0": gone},
			says: []string{"uverbs0", "--device /dev/infiniband"}},
		"the module": {changes: map[string]string{
			"sys/class/infiniband_verbs/uverbs0/ibdev": gone},
			says: []string{"modprobe ib_uverbs"}},
		"memory to lock": {changes: map[string]string{
			"proc/self/limits": "Max locked memory         65536                65536           " +
				"     bytes     \n"}, says: []string{"64 KiB", "ulimit -l"}},
		"the tag and a port": {changes: map[string]string{folder + "state": "1: DOWN\n"},
			without: true, says: []string{"-tags verbs", "active"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing := rdmaMachine(t, test.changes).missing(!test.without)
			text := unusable(Verbs, missing).Error()
			for _, says := range test.says {
				if !strings.Contains(text, says) {
					t.Errorf("it does not say %q: %s", says, text)
				}
			}
			if wanted := min(len(test.says), 1); len(missing) < wanted || len(test.says) == 0 &&
				len(missing) != 0 || len(missing) > max(1, len(test.says)) {
				t.Errorf("%+v", missing)
			}
		})
	}
	// A device that this user may not open. Root may open every device.
	if os.Getuid() != 0 {
		m := rdmaMachine(t, nil)
		if err := os.Chmod(m.path("dev/infiniband/uverbs0"), 0); err != nil {
			t.Fatal(err)
		}
		if missing := m.missing(true); len(missing) != 1 ||
			!strings.Contains(missing[0].Remedy, "group") {
			t.Errorf("%+v", missing)
		}
	}
	if missing := (machine{root: t.TempDir()}).missing(false); len(missing) != 3 {
		t.Errorf("a bare machine: %+v", missing)
	}
}
