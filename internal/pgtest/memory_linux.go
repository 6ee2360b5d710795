package pgtest

import "syscall"

// memoryDir is where Linux keeps files in memory.
const memoryDir = "/dev/shm"

const (
	tmpfs      = 0x01021994 // what Statfs calls the type of such a file system
	memoryRoom = 2 << 30    // bytes, for the servers of all test processes at once
)

// parentDir returns where the servers' directories belong: in memory when there is
// plenty of it, else where temporary files are. On a disk, the hundreds of files of each
// test's database cost more than most tests do.
func parentDir() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil || fs.Type != tmpfs ||
		fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	return memoryDir
}
