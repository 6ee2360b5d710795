// Package transport sends requests to workers, and reads their answers, by HTTP/1.1 over
// connections that it keeps and shares.
//
// Post takes a Request and returns an Answer. Everything happens in the caller's goroutine: it
// takes an idle connection or dials one, writes the request, reads the answer, and puts the
// connection back. So a request costs no channels and no switches between goroutines, and an idle
// connection keeps neither goroutines nor buffers. Answers are read by the parser of net/http.
//
// The rules that hold for every request:
//
//   - It is sent once. A retry is a decision of the dispatcher, which records each attempt.
//   - No redirect is followed, and no proxy of the environment is used.
//   - Nothing is decompressed: a small body could become a huge one.
//   - No header of the caller frames the request (Host, Content-Length, …).
//   - Bytes that nobody asked for never become the answer to a later request.
//   - Once the deadline passes, or the context ends, nothing more is read or written.
package transport
