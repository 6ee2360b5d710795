// Package moderation is a sample of tasks that several people judge.
//
// A task of type "moderation" names an image. Its only stage asks for a quorum: each person who
// opens the page is shown an image and asked whether it is fine, until three of at most five agree.
// The task's result is what they agreed on, and who voted for what.
package moderation
