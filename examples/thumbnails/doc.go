// Package thumbnails is a sample worker: an HTTP server that asyncflow delivers tasks to, and that
// makes thumbnails of the images in a folder.
//
// It uses package worker, and shows two ways to answer a delivery. The stage "inspect" is quick:
// its result is the answer (200). The stage "resize" takes longer: the delivery is accepted (202)
// at once, waits for a free slot, and is reported when it is done.
//
// It also shows how a worker stays correct when deliveries arrive at least once. It fails a task
// for good when a retry can't help. It bounds its work, and refuses more with Retry-After. It
// replaces files atomically.
package thumbnails
