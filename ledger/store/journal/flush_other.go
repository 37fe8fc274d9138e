//go:build !linux

package journal

import "os"

// SyncData makes a file durable. On macOS, Sync uses F_FULLFSYNC, which flushes the cache of the
// disk, too; fsync does not.
func SyncData(file *os.File) error { return file.Sync() }
