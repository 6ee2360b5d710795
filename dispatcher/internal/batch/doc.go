// Package batch makes batches out of single items. It knows nothing of what the items are, or where
// they are written.
package batch
