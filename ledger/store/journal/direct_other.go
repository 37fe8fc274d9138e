//go:build !linux

package journal

import "os"

func bypassCache(*os.File, bool) bool { return false }

func isMisaligned(error) bool { return false }
