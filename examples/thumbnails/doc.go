// Package thumbnails is a sample worker: an HTTP server that asyncflow delivers
// tasks to, and that makes thumbnails of the images in a folder.
//
// It is made with package worker, and shows the two ways to answer a delivery. The
// stage "inspect" is quick: its result is the answer (200). The stage "resize"
// takes longer: the delivery is accepted (202) at once, waits for its turn, and is
// reported when it is done.
//
// It also shows what keeps a worker correct when deliveries arrive at least
// once: a thing that can't get better is failed for good instead of being retried,
// work is bounded and the surplus is refused with Retry-After, and files are
// replaced atomically.
package thumbnails
