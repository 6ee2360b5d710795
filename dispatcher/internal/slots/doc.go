// Package slots shares slots between tenants, so that a tenant with much to do doesn't delay other
// tenants.
package slots
