//go:build verbs

package verbs

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// Devices lists the RDMA devices of this machine.
func Devices() ([]Device, error) {
	found, err := ibverbs.Devices()
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, d := range found {
		device := Device{Name: d.Name}
		for _, port := range d.Ports {
			if !port.Active || device.Active {
				continue
			}
			device.Active = true
			for _, gid := range port.GIDs {
				device.GIDs = append(device.GIDs, GID{Index: gid.Index,
					Address: gid.Address.String(), Type: gid.Type.String()})
			}
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// choose returns the device, port and address that are named, or the first usable ones.
func choose(device, gid string) (string, ibverbs.Port, ibverbs.GID, error) {
	devices, err := ibverbs.Devices()
	if err != nil {
		return "", ibverbs.Port{}, ibverbs.GID{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	reason := "the machine has none (ibv_devices lists them; Soft-RoCE makes one: rdma link add " +
		"rxe0 type rxe netdev eth0)"
	for _, d := range devices {
		if device != "" && d.Name != device {
			reason = fmt.Sprintf("the machine has no %q but %q", device, d.Name)
			continue
		}
		for _, port := range d.Ports {
			if !port.Active {
				reason = fmt.Sprintf("port %d of %s is down", port.Number, d.Name)
				continue
			}
			chosen, err := chooseGID(port, gid)
			if err != nil {
				reason = fmt.Sprintf("port %d of %s: %v", port.Number, d.Name, err)
				continue
			}
			return d.Name, port, chosen, nil
		}
	}
	return "", ibverbs.Port{}, ibverbs.GID{}, fmt.Errorf("%w: %s", ErrNoDevice, reason)
}

// chooseGID returns the address named by its index or its text, or else the best one.
func chooseGID(port ibverbs.Port, named string) (ibverbs.GID, error) {
	if len(port.GIDs) == 0 {
		return ibverbs.GID{}, fmt.Errorf("no GID")
	}
	if index, err := strconv.Atoi(named); err == nil {
		for _, gid := range port.GIDs {
			if gid.Index == index {
				return gid, nil
			}
		}
		return ibverbs.GID{}, fmt.Errorf("no GID of index %d", index)
	}
	if named != "" {
		address, err := netip.ParseAddr(named)
		if err != nil {
			return ibverbs.GID{}, fmt.Errorf("GID %q: %w", named, err)
		}
		for _, gid := range port.GIDs {
			if gid.Address.As16() == address.As16() && gid.Type != ibverbs.GIDRoCEv1 {
				return gid, nil
			}
		}
		return ibverbs.GID{}, fmt.Errorf("no GID %s", named)
	}
	for _, gid := range port.GIDs {
		if gid.Type == ibverbs.GIDRoCEv2 && gid.Address.Is4In6() {
			return gid, nil
		}
	}
	for _, gid := range port.GIDs {
		if gid.Type != ibverbs.GIDRoCEv1 {
			return gid, nil
		}
	}
	return port.GIDs[0], nil
}
