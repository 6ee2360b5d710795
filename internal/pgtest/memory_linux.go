package pgtest

import "syscall"

// memoryDir is where Linux keeps files in memory.
const memoryDir = "/dev/shm"

const (
	tmpfs      = 0x01021994 // the type of such a file system in Statfs
	memoryRoom = 2 << 30    // bytes, for the servers of all concurrent test processes
)

// parentDir returns the parent of the servers' directories: in memory if there is plenty, or
// else the directory of temporary files. On a disk, the hundreds of files of each test's
// database cost more than most tests do.
func parentDir() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil || fs.Type != tmpfs ||
		fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	return memoryDir
}
