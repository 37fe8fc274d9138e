//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/scripts/verbsguest/agenda"
)

const (
	guestProcessors = 2
	guestMegabytes  = 3072
	// guestTime limits the guest's life. Each program has a limit of its own, too.
	guestTime = 20 * time.Minute
	// consoleShown limits how much of the end of the kernel's console is shown when a guest dies,
	// in bytes.
	consoleShown = 4 << 10
)

// machine is a guest.
type machine struct {
	kernel, disk, folder string
	show                 io.Writer // gets the programs' output as it comes; may be nil

	mutex   sync.Mutex
	outputs map[string]*bytes.Buffer
}

// output returns a program's output.
func (m *machine) output(program string) []byte {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if buffer := m.outputs[program]; buffer != nil {
		return buffer.Bytes()
	}
	return nil
}

// run boots the guest and waits for its end. It passes each report to heard as it comes. It fails
// unless the guest reports that it is done.
func (m *machine) run(ctx context.Context, heard func(agenda.Report)) (err error) {
	m.outputs = map[string]*bytes.Buffer{}
	ctx, cancel := context.WithTimeoutCause(ctx, guestTime,
		fmt.Errorf("the guest did not end within %v", guestTime))
	defer cancel()
	outputRead, outputWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	reportsRead, reportsWrite, err := os.Pipe()
	if err != nil {
		return errors.Join(err, outputRead.Close(), outputWrite.Close())
	}
	console := filepath.Join(m.folder, "console")
	// On a busy machine the guest's clock may stand still for so long that its kernel takes the
	// timer for broken, and gives up (no_timer_check).
	arguments := []string{
		"-M", "pc,usb=off,vmport=off", "-nodefaults", "-no-user-config", "-accel",
		"tcg,thread=multi,tb-size=512", "-cpu", "Nehalem",
		"-smp", strconv.Itoa(guestProcessors), "-m", strconv.Itoa(guestMegabytes), "-kernel",
		m.kernel, "-initrd", m.disk,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr audit=0 " +
			"selinux=0 apparmor=0 tsc=unstable no_timer_check random.trust_cpu=on rdinit=/init",
		"-display", "none", "-no-reboot", "-serial", "file:" + console, "-device",
		"virtio-serial-pci", "-device", "virtio-rng-pci",
	}
	for i, name := range []string{agenda.PortOutput, agenda.PortReports} {
		arguments = append(arguments, "-chardev", fmt.Sprintf("file,id=%s,path=/dev/fd/%d",
			name, 3+i), "-device", "virtserialport,chardev="+name+",name="+name)
	}
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", arguments...)
	qemu.ExtraFiles = []*os.File{outputWrite, reportsWrite}
	qemu.WaitDelay = 5 * time.Second
	// Make sure that QEMU does not outlive this process, however that ends. The kernel kills it
	// when the thread that started it ends, so keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var said bytes.Buffer
	qemu.Stdout, qemu.Stderr = &said, &said
	if err := qemu.Start(); err != nil {
		return errors.Join(err, outputRead.Close(), outputWrite.Close(), reportsRead.Close(),
			reportsWrite.Close())
	}
	_, _ = outputWrite.Close(), reportsWrite.Close() // QEMU has its own copies
	var reading sync.WaitGroup
	reading.Go(func() { m.readOutput(outputRead) })
	done, reason := false, ""
	reading.Go(func() {
		decoder := json.NewDecoder(reportsRead)
		for {
			var r agenda.Report
			if decoder.Decode(&r) != nil {
				break
			}
			done = done || r.Event == agenda.EventDone
			if r.Event == agenda.EventFailed {
				reason = r.Reason
			}
			heard(r)
		}
		_, _ = io.Copy(io.Discard, reportsRead) // only its end matters
	})
	err = qemu.Wait()
	reading.Wait()
	_, _ = outputRead.Close(), reportsRead.Close() // both have ended
	switch {
	case reason != "":
		return fmt.Errorf("the guest could not begin: %s%s", reason, m.end(console))
	case done && err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.Join(fmt.Errorf("the guest ended before it was done%s\n%s", m.end(console),
		bytes.TrimSpace(said.Bytes())), err)
}

// end returns the end of the kernel's console output.
func (m *machine) end(console string) string {
	text, err := os.ReadFile(console)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	return "; the end of its console:\n" + strings.TrimSpace(
		string(text[max(0, len(text)-consoleShown):]))
}

// readOutput collects the output of each program separately.
func (m *machine) readOutput(from io.Reader) {
	reader := bufio.NewReaderSize(from, 64<<10)
	var current *bytes.Buffer
	for {
		line, err := reader.ReadString('\n')
		line, name, begins := strings.Cut(line, agenda.OutputMark)
		m.mutex.Lock()
		if current != nil {
			current.WriteString(line)
		}
		if begins {
			current = &bytes.Buffer{}
			m.outputs[strings.TrimSpace(name)] = current
		}
		m.mutex.Unlock()
		if m.show != nil {
			_, _ = io.WriteString(m.show, line) // the reader may have gone
		}
		if err != nil {
			return
		}
	}
}
