package fabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/rdmanet/verbs"
)

// Provider is one kind of fabric, and whether it works on this machine.
type Provider struct {
	Kind Kind `json:"kind"`
	// About describes it in one sentence.
	About string `json:"about"`
	// Usable reports whether nodes can use it here. Missing says why not.
	Usable  bool      `json:"usable"`
	Missing []Missing `json:"missing"`
}

// Missing is one thing that a fabric lacks, and its remedy.
type Missing struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Providers returns all kinds, in the order of Kinds.
func Providers() []Provider {
	missing := missingForVerbs()
	return []Provider{
		{Kind: Memory, About: "all nodes in one process: demo, testnet --run, bench", Usable: true,
			Missing: []Missing{}},
		{Kind: P2P, About: "TCP, authenticated and encrypted; the default", Usable: true,
			Missing: []Missing{}},
		{Kind: P2PTrusted, About: "TCP, authenticated once and not encrypted, for a network " +
			"that nobody else listens on", Usable: true, Missing: []Missing{}},
		{Kind: SharedMemory, About: "p2p-trusted, with shared memory between nodes of one user " +
			"and machine (Linux)", Usable: true, Missing: []Missing{}},
		{Kind: Verbs, About: "RDMA hardware or Soft-RoCE: one-sided memory without the owner's " +
			"processor", Usable: len(missing) == 0, Missing: missing},
	}
}

// missingForVerbs returns everything that verbs lacks here.
func missingForVerbs() []Missing {
	_, err := verbs.Devices()
	return machine{root: "/"}.missing(!errors.Is(err, verbs.ErrNotBuilt))
}

// lockedMemoryMin is how many bytes of memory a process must be allowed to lock, for a node's lanes
// and regions. Registered memory is never swapped out.
const lockedMemoryMin = 64 << 20

// missing lists everything that verbs lacks on this machine. The list is empty and not nil if it
// lacks nothing.
func (m machine) missing(built bool) []Missing {
	found := []Missing{}
	add := func(remedy, what string, arguments ...any) {
		found = append(found, Missing{What: fmt.Sprintf(what, arguments...), Remedy: remedy})
	}
	if !built {
		add("build it with cgo and the tag, `CGO_ENABLED=1 go build -tags verbs ./cmd/ledgerd`; "+
			"this needs a C compiler and libibverbs-dev",
			"this program was built without RDMA verbs")
	}
	if !m.hasLibrary() {
		add("install it, on Debian with `apt-get install libibverbs-dev ibverbs-providers`",
			"the library libibverbs is not installed")
	}
	devices, err := m.devices()
	switch {
	case err != nil:
		add("run ledgerd as a user who may read it", "the list of RDMA devices cannot be read: %v",
			err)
		return found
	case len(devices) == 0:
		add("load the card's driver; without a card, make a Soft-RoCE device: `modprobe "+
			"rdma_rxe && rdma link add rxe0 type rxe netdev eth0`",
			"this machine has no RDMA device: there is none in %s", m.path(classFolder))
		return found
	}
	active, permitted := false, false
	var refused error
	for _, device := range devices {
		active = active || device.Active()
		switch err := m.open(device); {
		case err == nil:
			permitted = true
		default:
			refused = err
		}
	}
	if !active {
		add("plug the cable in, and bring the network interface up with `ip link set NAME up`",
			"no port of %s is active", nameAll(devices))
	}
	if !permitted {
		remedy := "give ledgerd's user that device: with its group, or with a rule of udev"
		if errors.Is(refused, os.ErrNotExist) {
			remedy = "load the kernel's module with `modprobe ib_uverbs`; in a container, hand " +
				"it over: `--device /dev/infiniband`"
		}
		add(remedy, "programs cannot open the RDMA device: %v", refused)
	}
	if limit, known := m.lockedMemory(); known && limit < lockedMemoryMin {
		add("raise it: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in systemd",
			"a process may lock no more than %d KiB of memory, and registered memory is locked",
			limit>>10)
	}
	return found
}

func nameAll(devices []Device) string {
	var names []string
	for _, device := range devices {
		names = append(names, device.Name)
	}
	return strings.Join(names, ", ")
}

// hasLibrary looks for the library in the usual places.
func (m machine) hasLibrary() bool {
	for _, pattern := range []string{"lib/*/libibverbs.so.1", "usr/lib/*/libibverbs.so.1",
		"lib64/libibverbs.so.1", "usr/lib64/libibverbs.so.1", "usr/lib/libibverbs.so.1",
		"usr/local/lib/libibverbs.so.1"} {
		if found, err := filepath.Glob(m.path(pattern)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// lockedMemory returns how many bytes this process may lock.
func (m machine) lockedMemory() (limit uint64, known bool) {
	text, err := os.ReadFile(m.path("proc/self/limits"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			soft, _, _ := strings.Cut(strings.TrimSpace(fields), " ")
			limit, err := strconv.ParseUint(soft, 10, 64)
			return limit, err == nil // "unlimited" is not a known limit
		}
	}
	return 0, false
}
