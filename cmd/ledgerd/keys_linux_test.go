package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/client/keyfile"
)

// terminal is a terminal with a person, whose lines are typed one after the other.
type terminal struct {
	person *os.File
	slave  string
	shown  *written
	read   sync.WaitGroup
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	var number int
	raw, err := person.SyscallConn()
	if err == nil {
		err = errors.Join(err, raw.Control(func(fd uintptr) {
			err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
			if err == nil {
				number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		}))
	}
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	made := &terminal{person: person, slave: fmt.Sprintf("/dev/pts/%d", number), shown: &written{}}
	made.read.Go(func() {
		buffer := make([]byte, 1024)
		for {
			n, err := person.Read(buffer)
			_, _ = made.shown.Write(buffer[:n])
			if errors.Is(err, unix.EIO) {
				// No command has the terminal open for the moment.
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = person.Close()
		made.read.Wait()
	})
	return made
}

func (m *terminal) open() *os.File {
	file, err := os.OpenFile(m.slave, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return file
}

// types waits for a prompt and types a line.
func (m *terminal) types(t *testing.T, prompt, line string) {
	t.Helper()
	m.shown.await(t, "("+prompt+")")
	m.shown.mutex.Lock()
	m.shown.text.Reset()
	m.shown.mutex.Unlock()
	m.awaitQuiet(t)
	if _, err := m.person.WriteString(line + "\n"); err != nil {
		t.Error(err)
	}
}

// awaitQuiet waits until the echo is off: the command turns it off after it has shown the prompt.
func (m *terminal) awaitQuiet(t *testing.T) {
	t.Helper()
	raw, err := m.person.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var state *unix.Termios
		var asked error
		err := raw.Control(func(fd uintptr) {
			state, asked = unix.IoctlGetTermios(int(fd), unix.TCGETS) // the slave's
		})
		if err := errors.Join(err, asked); err != nil {
			t.Fatal(err)
		}
		if state.Lflag&unix.ECHO == 0 {
			return
		}
	}
	t.Fatal("the echo stays on")
}

func TestPassphraseAtTheTerminal(t *testing.T) {
	t.Parallel()
	tty := newTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	command := &cobra.Command{}
	command.SetContext(ctx)
	o := &passphraseOptions{command: command, openTerminal: tty.open}
	type answer struct {
		passphrase []byte
		err        error
	}
	answers := make(chan answer, 1)
	create := func() {
		passphrase, err := o.New("acme.key")
		answers <- answer{passphrase, err}
	}
	go create()
	tty.types(t, "new passphrase for acme.key: ", "open sesame")
	tty.types(t, "the same again: ", "open sesam")
	tty.types(t, "these differ\\s+new passphrase for acme.key: ", "open sesame")
	tty.types(t, "the same again: ", "open sesame")
	if got := <-answers; got.err != nil || string(got.passphrase) != "open sesame" {
		t.Errorf("%q, %v", got.passphrase, got.err)
	}
	go create()
	tty.types(t, "new passphrase for acme.key: ", "")
	if got := <-answers; got.err == nil || !strings.Contains(got.err.Error(), "--plain") {
		t.Errorf("an empty passphrase: %v", got.err)
	}
	tried := 0
	try := func(passphrase []byte) error {
		tried++
		if string(passphrase) != "open sesame" {
			return keyfile.ErrPassphrase
		}
		return nil
	}
	open := func() { answers <- answer{nil, o.Open("acme.key", try)} }
	go open()
	tty.types(t, "passphrase of acme.key: ", "mistyped")
	tty.types(t, "not the passphrase\\s+passphrase of acme.key: ", "open sesame")
	if got := <-answers; got.err != nil || tried != 2 {
		t.Errorf("%v after %d tries", got.err, tried)
	}
	go open()
	for range passphraseTries {
		tty.types(t, "passphrase of acme.key: ", "mistyped")
	}
	if got := <-answers; !errors.Is(got.err, keyfile.ErrPassphrase) {
		t.Error(got.err)
	}
	if text := tty.shown.String(); strings.Contains(text, "mistyped") {
		t.Errorf("the terminal shows what was typed: %q", text)
	}
	// An interrupted command has the echo on again.
	go open()
	tty.shown.await(t, "(passphrase of acme.key: )")
	tty.awaitQuiet(t)
	interrupt()
	if got := <-answers; !errors.Is(got.err, context.Canceled) {
		t.Error(got.err)
	}
	file := tty.open()
	defer file.Close()
	if state, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err != nil ||
		state.Lflag&unix.ECHO == 0 {
		t.Errorf("the echo is off: %v", err)
	}
}
