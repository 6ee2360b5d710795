// Package shards is a sample worker that counts the words of text files, in shards.
//
// A task of type "words" fans out in its stage "count": each shard counts the words in some lines
// of all files. Its stage "sum" gets the counts of all shards, and adds them up. Any number of
// workers can share the work; each of them needs the same files.
package shards
