//go:build linux

// Command init is the first process of the guest of scripts/verbs-test, and the only program there
// that is not under test. It mounts the file systems that programs expect, loads the kernel's
// modules, sets up a Soft-RoCE device, runs the programs of its agenda one after the other, reports
// how each ended, and switches the machine off.
//
// It is linked statically and needs nothing else in the guest: no shell, no tools. Any failure
// becomes a report with its reason, and the machine goes off all the same.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/scripts/verbsguest/agenda"
)

// devicePatience limits how long the kernel may take to show a device.
const devicePatience = 20 * time.Second

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a guest that "+
			"scripts/verbs-test makes, and of nothing else")
		os.Exit(2)
	}
	g := &guest{reports: os.Stderr, output: os.Stderr}
	if err := g.run(); err != nil {
		g.report(agenda.Report{Event: agenda.EventFailed, Reason: err.Error()})
		fmt.Fprintln(os.Stderr, "init:", err) // to the kernel's console
	}
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // the first process must not end
}

// guest holds the ports to the host.
type guest struct {
	reports, output *os.File
}

func (g *guest) report(r agenda.Report) {
	_ = json.NewEncoder(g.reports).Encode(r) // there is nowhere else to report it
}

func (g *guest) run() error {
	text, err := os.ReadFile(agenda.Path)
	if err != nil {
		return err
	}
	var todo agenda.Agenda
	if err := json.Unmarshal(text, &todo); err != nil {
		return fmt.Errorf("agenda: %w", err)
	}
	if err := mount(); err != nil {
		return err
	}
	for _, module := range todo.Modules {
		if err := loadModule(module); err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	if err := g.open(); err != nil {
		return err
	}
	unlimited := syscall.Rlimit{Cur: ^uint64(0), Max: ^uint64(0)}
	const memoryLocked = 8 // RLIMIT_MEMLOCK
	if err := syscall.Setrlimit(memoryLocked, &unlimited); err != nil {
		return fmt.Errorf("locked memory: %w", err)
	}
	files := syscall.Rlimit{Cur: 65536, Max: 65536}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	if err := setUpDevice(todo.Device, todo.Address); err != nil {
		return err
	}
	g.report(agenda.Report{Event: agenda.EventReady})
	for _, program := range todo.Programs {
		g.runProgram(program, todo.Environment)
	}
	g.report(agenda.Report{Event: agenda.EventDone})
	return nil
}

// mount mounts the kernel's file systems, and a tmpfs for temporary files that reports its free
// space, as disks do.
func mount() error {
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""},
		{"tmpfs", "/tmp", "size=75%,mode=1777"}, {"tmpfs", "/dev/shm", ""},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil &&
			!errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// loadModule loads a module's file into the kernel.
func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	const finitModule = 313
	none := []byte{0}
	if _, _, errno := syscall.Syscall(finitModule, file.Fd(), uintptr(bytesPointer(none)),
		0); errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}

// open finds the ports by their names. They appear a moment after their driver.
func (g *guest) open() error {
	for _, port := range []struct {
		name string
		file **os.File
	}{{agenda.PortReports, &g.reports}, {agenda.PortOutput, &g.output}} {
		err := await("port "+port.name, func() (bool, error) {
			names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
			if err != nil {
				return false, err
			}
			for _, path := range names {
				text, err := os.ReadFile(path)
				if err != nil || strings.TrimSpace(string(text)) != port.name {
					continue
				}
				file, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(path)), os.O_WRONLY, 0)
				if errors.Is(err, os.ErrNotExist) {
					return false, nil
				}
				*port.file = file
				return true, err
			}
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await calls there repeatedly until it returns true.
func await(what string, there func() (bool, error)) error {
	for deadline := time.Now().Add(devicePatience); ; {
		ok, err := there()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not there after %v", what, devicePatience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// runProgram runs a program until it ends, or until its time is over.
func (g *guest) runProgram(program agenda.Program, environment []string) {
	_, _ = fmt.Fprintf(g.output, "%s%s\n", agenda.OutputMark, program.Name) // best effort
	g.report(agenda.Report{Event: agenda.EventBegun, Program: program.Name})
	begun := time.Now()
	ended := agenda.Report{Event: agenda.EventEnded, Program: program.Name}
	command := exec.Command(program.Path, program.Arguments...)
	command.Env, command.Dir = environment, program.Folder
	command.Stdout, command.Stderr = g.output, g.output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := command.Start()
	if err == nil {
		timer := time.AfterFunc(time.Duration(program.Seconds)*time.Second, func() {
			ended.Reason = fmt.Sprintf("it did not end within %d s", program.Seconds)
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // and its children
		})
		err = command.Wait()
		timer.Stop()
	}
	ended.Seconds = time.Since(begun).Seconds()
	if err != nil {
		ended.Status = agenda.StatusKilled
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
			ended.Status = exit.ExitCode()
		}
		if ended.Reason == "" {
			ended.Reason = err.Error()
		}
	}
	g.report(ended)
}
