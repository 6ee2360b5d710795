// Package thumbnails is a sample worker: an HTTP server that asyncflow delivers
// tasks to, and that makes thumbnails of the images in a folder.
//
// It shows the two ways to answer a delivery. The stage "inspect" is quick: its
// result is the answer (200). The stage "resize" takes longer: the delivery is
// accepted (202), worked on in the background and completed by a call to the URL
// in the delivery, with the token in the delivery.
//
// It also shows what keeps a worker correct when deliveries arrive at least
// once: every delivery's signature is verified before its body is read, a thing
// that can't get better is failed for good instead of being retried, work is
// bounded and the surplus is refused with Retry-After, files are replaced
// atomically, and nothing is reported after the delivery's deadline.
package thumbnails
