// Package settings keeps what owners and operators configure: task types, endpoints, schedules,
// tenants, alerts. It also migrates the schema.
//
// It uses packages trees, counts, hot, records and catalog. Each kind of setting has files of its
// name: begin with type_put.go.
package settings
