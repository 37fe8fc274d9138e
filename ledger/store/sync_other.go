//go:build !linux

package store

import "os"

// syncData makes a file durable. On macOS, Sync uses F_FULLFSYNC, which flushes the cache of the
// disk, too; fsync does not.
func syncData(file *os.File) error { return file.Sync() }
