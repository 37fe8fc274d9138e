//go:build !linux

package bench

import "os"

// flush makes a file durable.
func flush(file *os.File) error { return file.Sync() }
