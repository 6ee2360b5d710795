//go:build !unix

package main

// keys does nothing: there are no keys here.
func (o *listenOutput) keys(func(key byte)) (restore func()) { return func() {} }
