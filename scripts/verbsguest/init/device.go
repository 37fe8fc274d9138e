//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// interfaceName is the network interface that the kernel module dummy creates.
const interfaceName = "dummy0"

// interfaceMTU has room for a RoCE packet of 4,096 bytes with its headers.
const interfaceMTU = 4200

// Constants of the kernel's header rdma_netlink.h for a new link.
const (
	netlinkRDMA         = 20
	rdmaNewLink         = 5<<10 | 3 // client NLDEV, command NEWLINK
	rdmaAttributeDevice = 2
	rdmaAttributeNetDev = 51
	rdmaAttributeKind   = 65
)

// bytesPointer returns the address of bytes, for the kernel.
func bytesPointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// setUpDevice brings the loopback interface up, gives the dummy interface an address, and makes a
// Soft-RoCE device on it.
func setUpDevice(device, prefix string) error {
	address, err := netip.ParsePrefix(prefix)
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if err := raise("lo", 65536); err != nil {
		return err
	}
	if err := raise(interfaceName, interfaceMTU); err != nil {
		return err
	}
	if err := addAddress(interfaceName, address); err != nil {
		return err
	}
	link := attribute(nil, rdmaAttributeDevice, append([]byte(device), 0))
	link = attribute(link, rdmaAttributeKind, append([]byte("rxe"), 0))
	link = attribute(link, rdmaAttributeNetDev, append([]byte(interfaceName), 0))
	if err := ask(netlinkRDMA, rdmaNewLink, 0, link); err != nil {
		return fmt.Errorf("make the Soft-RoCE device %s: %w", device, err)
	}
	if err := await("/dev/infiniband/uverbs0", func() (bool, error) {
		_, err := os.Stat("/dev/infiniband/uverbs0")
		return err == nil, nil
	}); err != nil {
		return err
	}
	// The device's table of addresses is filled a moment later.
	wanted := mapped(address.Addr())
	return await("the device's address "+address.Addr().String(), func() (bool, error) {
		paths, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/gids/*")
		if err != nil {
			return false, err
		}
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil &&
				strings.TrimSpace(string(text)) == wanted {
				return true, nil
			}
		}
		return false, nil
	})
}

// mapped formats an IPv4 address as the kernel writes a device's address: IPv4-mapped, in eight
// groups of four digits.
func mapped(address netip.Addr) string {
	long := address.As16()
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%02x%02x", long[2*i], long[2*i+1])
	}
	return strings.Join(groups, ":")
}

// raise brings an interface up.
func raise(name string, mtu uint32) error {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	message := make([]byte, syscall.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(message[4:], uint32(at.Index))
	binary.NativeEndian.PutUint32(message[8:], syscall.IFF_UP)
	binary.NativeEndian.PutUint32(message[12:], syscall.IFF_UP) // the mask of the flags to set
	message = attribute(message, syscall.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, mtu))
	if err := ask(syscall.NETLINK_ROUTE, syscall.RTM_NEWLINK, 0, message); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

// addAddress gives an interface an IPv4 address.
func addAddress(name string, address netip.Prefix) error {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	ip := address.Addr().As4()
	message := make([]byte, syscall.SizeofIfAddrmsg)
	message[0], message[1] = syscall.AF_INET, byte(address.Bits())
	binary.NativeEndian.PutUint32(message[4:], uint32(at.Index))
	message = attribute(message, syscall.IFA_LOCAL, ip[:])
	message = attribute(message, syscall.IFA_ADDRESS, ip[:])
	if err := ask(syscall.NETLINK_ROUTE, syscall.RTM_NEWADDR,
		syscall.NLM_F_CREATE|syscall.NLM_F_EXCL, message); err != nil {
		return fmt.Errorf("address %v for %s: %w", address, name, err)
	}
	return nil
}

// attribute appends a netlink attribute, padded to four bytes.
func attribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(4+len(value)))
	to = binary.NativeEndian.AppendUint16(to, kind)
	to = append(to, value...)
	for len(to)%4 != 0 {
		to = append(to, 0)
	}
	return to
}

// ask sends the kernel one netlink message and waits for its acknowledgement.
func ask(family int, kind, flags uint16, payload []byte) error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, family)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(socket) }() // nothing is pending any more
	if err := syscall.Bind(socket, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err !=
		nil {
		return err
	}
	const sequence = 1
	message := binary.NativeEndian.AppendUint32(nil, uint32(syscall.SizeofNlMsghdr+len(payload)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message,
		flags|syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	message = binary.NativeEndian.AppendUint32(message, sequence)
	message = binary.NativeEndian.AppendUint32(message, 0) // the sender, which the kernel fills in
	message = append(message, payload...)
	if err := syscall.Sendto(socket, message, 0,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := syscall.Recvfrom(socket, buffer, 0)
		if err != nil {
			return err
		}
		answers, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return err
		}
		for _, answer := range answers {
			if answer.Header.Type != syscall.NLMSG_ERROR || answer.Header.Seq != sequence ||
				len(answer.Data) < 4 {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(answer.Data)); code != 0 {
				return syscall.Errno(-code)
			}
			return nil
		}
	}
}
