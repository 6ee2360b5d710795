// Package rates keeps the token buckets of a node: for each tenant, endpoint, type and flow key
// with a rate, this node's share of it. It knows neither the database nor the tasks.
package rates
