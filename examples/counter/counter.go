package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/ledgerd/ledgerd/machine"
)

// Counter is a number that commands change: "+5" adds 5, "*2" multiplies by 2. The order of the
// commands matters. A counter ignores every payload that is not a command.
type Counter struct {
	// Path is the file that holds the counter.
	Path string

	mutex sync.RWMutex
	state *state // nil unless open
}

// state is what the file holds. The height and the value are written as one.
type state struct {
	Height machine.Height
	Value  int64
}

var _ machine.StateMachine[int64, int64] = (*Counter)(nil)

// Open reads the file, if there is one, and returns the height that survived.
func (c *Counter) Open() (machine.Height, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var read state
	data, err := os.ReadFile(c.Path)
	if err == nil {
		err = json.Unmarshal(data, &read)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("counter: %w", err)
	}
	c.state = &read
	return read.Height, nil
}

// Apply executes the commands of a round. It returns by how much they changed the value.
func (c *Counter) Apply(round machine.Round) (machine.Height, int64, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.state == nil {
		return 0, 0, machine.ErrNotOpen
	}
	changed, before := false, c.state.Value
	for _, payload := range round.Payloads {
		if len(payload) < 2 {
			continue
		}
		number, err := strconv.ParseInt(string(payload[1:]), 10, 64)
		switch {
		case err != nil:
			continue // the same at every replica
		case payload[0] == '+':
			c.state.Value += number
		case payload[0] == '*':
			c.state.Value *= number
		default:
			continue
		}
		changed = true
	}
	if changed {
		c.state.Height++
	}
	return c.state.Height, c.state.Value - before, nil
}

// Sync writes the counter to its file: first to another one, which then replaces it. So the file is
// always whole. Calls must not overlap.
func (c *Counter) Sync() (machine.Height, error) {
	c.mutex.RLock()
	if c.state == nil {
		c.mutex.RUnlock()
		return 0, machine.ErrNotOpen
	}
	saved := *c.state
	c.mutex.RUnlock()
	if err := c.save(saved); err != nil {
		return 0, fmt.Errorf("counter: %w", err)
	}
	return saved.Height, nil
}

func (c *Counter) save(saved state) error {
	data, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	file, err := os.Create(c.Path + ".new")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), c.Path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(c.Path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // the new name survives a power cut, too
}

// Lookup calls read with the counter's value.
func (c *Counter) Lookup(read func(value int64) error) error {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	if c.state == nil {
		return machine.ErrNotOpen
	}
	return read(c.state.Value)
}

// Close saves the counter and closes it.
func (c *Counter) Close() error {
	if _, err := c.Sync(); err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.state = nil
	return nil
}
