// Package journal is the log that a store writes before its database: groups of bytes, each on the
// disk after one flush.
//
//	j, err := journal.Open(dir, journal.Known{Segment: 9, Group: 1000}, journal.Options{...})
//	// What an earlier process appended after group 1000, in order.
//	err = j.Groups(func(group uint64, payload []byte) error { ... })
//	// From here on it takes new groups.
//	err = j.Start()
//	group, err := j.Append(payload) // on the disk when it returns
//	j.Release(group)                // the database has everything up to this group
//	err = j.Close()
//
// # Layout
//
// The journal is a row of segments: files of one size, numbered from 1, which are written with
// zeros before they are used. So an append changes no metadata of the file system, and its flush
// (fdatasync) waits for the data alone. A segment all of whose groups were released is renamed to
// be a later one. Its old content stays in it.
//
// A file is a row of sectors of 512 bytes, the unit that disks write whole. Each sector names its
// segment, its group, its place in the group and the number of the group's sectors, under a
// checksum (sector.go). A group begins at a multiple of 4 KiB, so that no flush writes a page that
// an earlier group needs, and may go on in the next segment. It is written in whole such pages,
// with zeros after its last sector. On Linux they bypass the system's cache, if the file system
// allows that (segment.write).
//
// # What always holds
//
//   - When Append has returned, neither kill -9 nor a power cut loses the group, and Groups returns
//     it until it is released. This assumes that the disk keeps what it flushed.
//   - Groups are numbered without gaps. A group is written only after the flush of the one before
//     has returned.
//   - A sector of an earlier use of a file is never taken for one of this use, because it names
//     another segment. What a crash leaves behind the last whole group is erased before the next
//     one is written, so no group is ever mixed from two.
//   - A segment is used only after the caller has recorded that it exists (Options.Claim). So no
//     segment can go missing unnoticed.
//
// # What a crash leaves
//
// Because of the second invariant, any sector of group n+2 proves that group n+1 was flushed. If
// that group is not whole now, it is damaged, and Open returns ErrDamaged. Without such a sector,
// the group n+1 after the last whole one is judged by its sectors. Sectors that are whole, and ones
// that were never written, are what a power cut leaves of a group whose flush did not return.
// Nobody was told of it. A sector that is neither was damaged, or tore within itself. The group
// may have been flushed, so Doubt says so.
//
// The bounds: the segments that wait to be released are the caller's to bound; at most two free
// ones are kept. One goroutine prepares the next segment. Close waits for it.
package journal
