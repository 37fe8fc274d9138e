package fabric

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Folders of Linux: classFolder and verbsFolder list the RDMA devices and the device files that
// programs open to use them. devicesFolder contains these files.
const (
	classFolder   = "sys/class/infiniband"
	verbsFolder   = "sys/class/infiniband_verbs"
	devicesFolder = "dev/infiniband"
)

// Device is an RDMA device of this machine, as its kernel describes it.
type Device struct {
	Name string `json:"name"`
	// File is the device file that programs open to use it. It is empty if there is none.
	File string `json:"file"`
	// Openable reports whether this process may open it.
	Openable bool   `json:"openable"`
	Ports    []Port `json:"ports"`
}

// Active reports whether a port of the device is active.
func (d Device) Active() bool {
	return slices.ContainsFunc(d.Ports, func(p Port) bool { return p.State == stateActive })
}

// stateActive is the state of a port that carries data.
const stateActive = "ACTIVE"

// Port is a port of a device.
type Port struct {
	Number int `json:"number"`
	// State is ACTIVE, DOWN, INIT and so on. Link is Ethernet or InfiniBand. Rate is the kernel's
	// text, such as "100 Gb/sec (4X EDR)".
	State string `json:"state"`
	Link  string `json:"link"`
	Rate  string `json:"rate"`
	GIDs  []GID  `json:"gids"`
}

// GID is an address of a port.
type GID struct {
	Index   int        `json:"index"`
	Address netip.Addr `json:"address"`
	// Type is "RoCE v2" or "IB/RoCE v1". Interface is the network interface that has the address,
	// if there is one.
	Type      string `json:"type"`
	Interface string `json:"interface"`
}

// Devices lists this machine's RDMA devices by name. It returns none if the system is not Linux. It
// needs neither the build tag verbs nor a library.
func Devices() ([]Device, error) { return machine{root: "/"}.devices() }

// machine is a machine's file system at a root.
type machine struct{ root string }

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

// read returns a file's text without surrounding space, or "" if there is none. Drivers may omit
// such files, so that is not an error.
func (m machine) read(name string) string {
	text, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (m machine) devices() ([]Device, error) {
	entries, err := os.ReadDir(m.path(classFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := m.files()
	var devices []Device
	for _, entry := range entries {
		device := Device{Name: entry.Name(), File: files[entry.Name()], Ports: []Port{}}
		device.Openable = m.open(device) == nil
		ports := filepath.Join(classFolder, device.Name, "ports")
		for _, number := range m.numbers(ports) {
			device.Ports = append(device.Ports, m.port(filepath.Join(ports, strconv.Itoa(number)),
				number))
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// files returns the device files that programs open, by the devices' names.
func (m machine) files() map[string]string {
	files := map[string]string{}
	entries, err := os.ReadDir(m.path(verbsFolder))
	if err != nil {
		return files // the module is not loaded
	}
	for _, entry := range entries {
		if name := m.read(filepath.Join(verbsFolder, entry.Name(), "ibdev")); name != "" {
			files[name] = m.path(filepath.Join(devicesFolder, entry.Name()))
		}
	}
	return files
}

// open tries to open a device for this process.
func (m machine) open(device Device) error {
	if device.File == "" {
		return &fs.PathError{Op: "open", Path: m.path(devicesFolder), Err: fs.ErrNotExist}
	}
	file, err := os.OpenFile(device.File, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// numbers returns the names in a folder that are numbers, ascending.
func (m machine) numbers(folder string) []int {
	entries, err := os.ReadDir(m.path(folder))
	if err != nil {
		return nil
	}
	var numbers []int
	for _, entry := range entries {
		if number, err := strconv.Atoi(entry.Name()); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

func (m machine) port(folder string, number int) Port {
	// The file reads, for example, "4: ACTIVE".
	_, state, _ := strings.Cut(m.read(filepath.Join(folder, "state")), ": ")
	port := Port{Number: number, State: state, Link: m.read(filepath.Join(folder, "link_layer")),
		Rate: m.read(filepath.Join(folder, "rate")), GIDs: []GID{}}
	for _, index := range m.numbers(filepath.Join(folder, "gids")) {
		name := strconv.Itoa(index)
		address, err := netip.ParseAddr(m.read(filepath.Join(folder, "gids", name)))
		if err != nil || address.IsUnspecified() {
			continue // the table has unused places
		}
		port.GIDs = append(port.GIDs, GID{
			Index: index, Address: address.Unmap(),
			Type:      m.read(filepath.Join(folder, "gid_attrs", "types", name)),
			Interface: m.read(filepath.Join(folder, "gid_attrs", "ndevs", name)),
		})
	}
	return port
}
