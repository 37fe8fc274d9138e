//go:build linux

package torture

import (
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// Power.
//
// A node whose power can be cut has its home on an ext4 volume of its own, on a loop device. The
// kernel can shut such a file system down at once, without its journal's last transaction and
// without the unsynced pages. File systems' own tests simulate a power failure in this way. After
// the next mount, the volume holds the synced data, and whatever the kernel had written back by
// chance.

const (
	// volumeBytes is the size of a volume. Its file is sparse, so it takes only the space of the
	// home.
	volumeBytes = 2 << 30
	// shutDown is EXT4_IOC_SHUTDOWN, and withoutJournal its EXT4_GOING_FLAGS_NOLOGFLUSH.
	shutDown       = 0x8004587d
	withoutJournal = 2
	pageBytes      = 4 << 10
)

// volume is a file system whose power can be cut.
type volume struct {
	t      *testing.T
	dir    string // mount point
	device *os.File
}

// newVolume makes a volume and mounts it at dir. It skips the test if this machine cannot do that.
func newVolume(t *testing.T, dir string) *volume {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cutting power takes root, for a loop device and a mount")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, volumeBytes); err != nil {
		t.Fatal(err)
	}
	// Inodes of 256 bytes have birth times.
	format := exec.Command("mkfs.ext4", "-q", "-I", "256", "-E", "nodiscard,lazy_itable_init=1",
		image)
	format.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if output, err := format.CombinedOutput(); err != nil {
		t.Skipf("cutting power takes an ext4 volume on a loop device: %v: %s", err, output)
	}
	device, err := attach(image)
	if err != nil {
		t.Skipf("cutting power takes an ext4 volume on a loop device: %v", err)
	}
	v := &volume{t: t, dir: dir, device: device}
	t.Cleanup(func() { _ = device.Close() })
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := v.mount(); err != nil {
		t.Skipf("cutting power takes an ext4 volume: %v", err)
	}
	t.Cleanup(func() {
		if err := v.unmount(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Remove(filepath.Join(dir, "lost+found")); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	return v
}

// mount mounts the volume, which replays its journal. The journal is committed with each sync, and
// hardly ever by itself.
func (v *volume) mount() error {
	err := unix.Mount(v.device.Name(), v.dir, "ext4", unix.MS_NOATIME, "commit=300,errors=continue")
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", v.device.Name(), v.dir, err)
	}
	return nil
}

func (v *volume) unmount() error {
	for begun := time.Now(); ; <-time.After(lookEvery) {
		err := unix.Unmount(v.dir, 0)
		if err == nil || time.Since(begun) > 10*time.Second {
			return err
		}
	}
}

// die shuts the file system down: unsynced data is gone, and its users get errors.
func (v *volume) die() {
	v.t.Helper()
	dir, err := os.Open(v.dir)
	if err != nil {
		v.t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutDown, withoutJournal); err != nil {
		v.t.Skipf("cutting power takes an ext4 that can be shut down: %v", err)
	}
}

// revive mounts a file system again after die.
func (v *volume) revive() {
	v.t.Helper()
	if err := errors.Join(v.unmount(), v.mount()); err != nil {
		v.t.Fatal(err)
	}
}

// tear writes a random part of the unsynced pages to the disk, so that the last group is torn.
func (v *volume) tear(random *rand.Rand) {
	v.t.Helper()
	err := filepath.WalkDir(v.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		status, err := file.Stat()
		if err != nil {
			return err
		}
		for at := int64(0); at < status.Size(); at += pageBytes {
			if random.IntN(2) == 0 {
				continue
			}
			err := unix.SyncFileRange(int(file.Fd()), at, pageBytes, unix.SYNC_FILE_RANGE_WRITE)
			if err != nil {
				return fmt.Errorf("write a page of %s: %w", path, err)
			}
		}
		return unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// newShardOnVolumes makes the homes of a shard, each on a volume of its own.
func newShardOnVolumes(t *testing.T, nodes int, environment ...string) *shard {
	t.Helper()
	return newShardAt(t, slices.Repeat([]string{"127.0.0.1"}, nodes), environment...)
}

// newShardAt makes the homes of a shard with nodes at the given hosts, each on a volume of its own.
func newShardAt(t *testing.T, hosts []string, environment ...string) *shard {
	t.Helper()
	s := &shard{t: t, dir: filepath.Join(t.TempDir(), "net"), environment: environment,
		program: program}
	base, err := testnet.FreeBasePort(len(hosts))
	if err != nil {
		t.Fatal(err)
	}
	api := func(i int) string { return net.JoinHostPort(hosts[i], strconv.Itoa(base+2*i)) }
	fabric := func(i int) string { return net.JoinHostPort(hosts[i], strconv.Itoa(base+2*i+1)) }
	key := func() ed25519.PrivateKey {
		key, err := p2p.NewIdentity(cryptorand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	public := func(key ed25519.PrivateKey) []byte { return key.Public().(ed25519.PublicKey) }
	operator := key()
	genesis := &ledger.Genesis{
		Chain: "torture", Time: ledger.Milliseconds(time.Now().UnixMilli()),
		Operators: []ledger.PublicKey{ledger.PublicKey(public(operator))},
	}
	var keys []ed25519.PrivateKey
	for i := range hosts {
		keys = append(keys, key())
		member := ledger.Member{Name: testnet.Name(i), Key: public(keys[i]), Address: fabric(i)}
		genesis.Members = append(genesis.Members, member)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.showLogs()
		}
	})
	for i := range hosts {
		dir := filepath.Join(s.dir, testnet.Name(i))
		s.volumes = append(s.volumes, newVolume(t, dir))
		config := home.Default()
		config.API.Listen = api(i)
		if _, err := home.Create(dir, config, genesis, keys[i]); err != nil {
			t.Fatal(err)
		}
		s.add(dir)
	}
	if err := home.WriteKey(filepath.Join(s.dir, testnet.OperatorKeyFile), operator); err != nil {
		t.Fatal(err)
	}
	// Sync the homes before anything starts, as on a machine that was set up a while ago.
	unix.Sync()
	return s
}

// cut cuts the power of nodes: their processes end at once, and unsynced data is gone. With a
// random source, parts of the unsynced data survive.
func (s *shard) cut(random *rand.Rand, which ...int) {
	s.t.Helper()
	s.kill(which...)
	for _, i := range which {
		if random != nil {
			s.volumes[i].tear(random)
		}
		s.volumes[i].die()
	}
	for _, i := range which {
		s.volumes[i].revive()
	}
}

// dyingDisk makes a disk die while its node runs on for a while. The disk comes back without the
// unsynced data.
func (s *shard) dyingDisk(i int, while time.Duration) {
	s.t.Helper()
	s.volumes[i].die()
	<-time.After(while)
	s.kill(i)
	s.volumes[i].revive()
}

// TestVolumeLosesWhatIsNotSynced proves that synced data stays, and that all other data is lost.
func TestVolumeLosesWhatIsNotSynced(t *testing.T) {
	t.Parallel()
	v := newVolume(t, filepath.Join(t.TempDir(), "volume"))
	path := func(name string) string { return filepath.Join(v.dir, name) }
	synced, err := os.Create(path("synced"))
	if err != nil {
		t.Fatal(err)
	}
	_, writing := synced.WriteString("before")
	folder, err := os.Open(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writing, synced.Sync(), folder.Sync(), folder.Close()); err != nil {
		t.Fatal(err)
	}
	_, writing = synced.WriteAt([]byte("after."), 0)
	if err := errors.Join(writing, os.WriteFile(path("new"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	v.die()
	if err := synced.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync of a dead disk: %v", err)
	}
	if err := synced.Close(); err != nil {
		t.Fatal(err)
	}
	v.revive()
	if text, err := os.ReadFile(path("synced")); err != nil || string(text) != "before" {
		t.Errorf("the synced file holds %q, %v", text, err)
	}
	if _, err := os.Stat(path("new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was not synced is there: %v", err)
	}
}
