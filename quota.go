package asyncflow

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// NoLimit, as a tenant's quota, removes the operator's default.
const NoLimit = -1

// QuotaName names one of Quotas.
type QuotaName string

// The quotas of a tenant.
const (
	QuotaTaskTypes           QuotaName = "task_types"
	QuotaEndpoints           QuotaName = "endpoints"
	QuotaSchedules           QuotaName = "schedules"
	QuotaConfigurationBytes  QuotaName = "configuration_bytes" // of types, endpoints and schedules
	QuotaPendingTasks        QuotaName = "pending_tasks"       // waiting, pending and running
	QuotaSubmitsPerSecond    QuotaName = "submits_per_second"
	QuotaContextBytes        QuotaName = "context_bytes" // of one task
	QuotaDeliveriesPerSecond QuotaName = "deliveries_per_second"
	QuotaConcurrency         QuotaName = "concurrency" // tasks that are running
	QuotaChildren            QuotaName = "children"    // of one task in one stage
)

// Quotas bound what a tenant may use, on all nodes together. In a tenant's settings, 0 is the
// operator's default, and NoLimit is no limit; in effective quotas (see Or), 0 is no limit.
type Quotas struct {
	TaskTypes           int64   `json:"task_types,omitempty"`
	Endpoints           int64   `json:"endpoints,omitempty"`
	Schedules           int64   `json:"schedules,omitempty"`
	ConfigurationBytes  int64   `json:"configuration_bytes,omitempty"`
	PendingTasks        int64   `json:"pending_tasks,omitempty"`
	SubmitsPerSecond    float64 `json:"submits_per_second,omitempty"`
	ContextBytes        int64   `json:"context_bytes,omitempty"`
	DeliveriesPerSecond float64 `json:"deliveries_per_second,omitempty"`
	Concurrency         int64   `json:"concurrency,omitempty"`
	Children            int64   `json:"children,omitempty"`
}

// MostChildren returns how many children a task may make in one stage.
func (q Quotas) MostChildren() int {
	if q.Children <= 0 { // no quota
		return MaxChildren
	}
	return int(q.Children)
}

// DefaultQuotas apply unless the tenant or the operator set others: no tenant can fill a node's
// memory by its configuration.
var DefaultQuotas = Quotas{
	TaskTypes:          1000,
	Endpoints:          1000,
	Schedules:          1000,
	ConfigurationBytes: 16 << 20,
	Children:           DefaultMaxChildren,
}

// QuotaUse is how much of a quota is in use.
type QuotaUse struct {
	Name  QuotaName
	Limit float64 // 0: there is none
	Used  float64
}

// quotaRules hold the valid range of each quota, in the order of lists.
var quotaRules = []struct {
	name        QuotaName
	least, most float64
	whole       bool
}{
	{QuotaTaskTypes, 1, 100_000, true},
	{QuotaPendingTasks, 1, 1e12, true},
	{QuotaSubmitsPerSecond, 0.01, 1e6, false},
	{QuotaContextBytes, 1, 64 << 20, true},
	{QuotaDeliveriesPerSecond, 0.01, 1e6, false},
	{QuotaConcurrency, 1, 1e6, true},
	{QuotaChildren, 1, MaxChildren, true},
	{QuotaEndpoints, 1, 100_000, true},
	{QuotaSchedules, 1, 100_000, true},
	{QuotaConfigurationBytes, 1, 1 << 30, true},
}

// QuotaNames returns the names of all quotas, in the order of lists.
func QuotaNames() []QuotaName {
	names := make([]QuotaName, len(quotaRules))
	for i, r := range quotaRules {
		names[i] = r.name
	}
	return names
}

// Get returns a quota; 0 for an unknown one.
func (q Quotas) Get(name QuotaName) float64 {
	switch name {
	case QuotaTaskTypes:
		return float64(q.TaskTypes)
	case QuotaEndpoints:
		return float64(q.Endpoints)
	case QuotaSchedules:
		return float64(q.Schedules)
	case QuotaConfigurationBytes:
		return float64(q.ConfigurationBytes)
	case QuotaPendingTasks:
		return float64(q.PendingTasks)
	case QuotaSubmitsPerSecond:
		return q.SubmitsPerSecond
	case QuotaContextBytes:
		return float64(q.ContextBytes)
	case QuotaDeliveriesPerSecond:
		return q.DeliveriesPerSecond
	case QuotaConcurrency:
		return float64(q.Concurrency)
	case QuotaChildren:
		return float64(q.Children)
	}
	return 0
}

// set sets a quota, if it is known.
func (q *Quotas) set(name QuotaName, value float64) {
	switch name {
	case QuotaTaskTypes:
		q.TaskTypes = int64(value)
	case QuotaEndpoints:
		q.Endpoints = int64(value)
	case QuotaSchedules:
		q.Schedules = int64(value)
	case QuotaConfigurationBytes:
		q.ConfigurationBytes = int64(value)
	case QuotaPendingTasks:
		q.PendingTasks = int64(value)
	case QuotaSubmitsPerSecond:
		q.SubmitsPerSecond = value
	case QuotaContextBytes:
		q.ContextBytes = int64(value)
	case QuotaDeliveriesPerSecond:
		q.DeliveriesPerSecond = value
	case QuotaConcurrency:
		q.Concurrency = int64(value)
	case QuotaChildren:
		q.Children = int64(value)
	}
}

// Or returns the effective quotas of a tenant with these settings. In them, 0 is no limit.
func (q Quotas) Or(defaults Quotas) Quotas {
	for _, r := range quotaRules {
		value := q.Get(r.name)
		if value == 0 {
			value = defaults.Get(r.name)
		}
		q.set(r.name, max(0, value))
	}
	return q
}

// With returns the quotas with some of them changed. An invalid value is a CodeInvalid error,
// which names the quota.
func (q Quotas) With(changes map[QuotaName]float64) (Quotas, error) {
	var p problems
	known := 0
	for _, r := range quotaRules {
		value, ok := changes[r.name]
		if !ok {
			continue
		}
		known++
		inRange := value >= r.least && value <= r.most && (!r.whole || value == math.Trunc(value))
		if value != 0 && value != NoLimit && !inRange {
			p.add("quotas."+string(r.name),
				"is %s; it must be %s, -1 (no limit) or 0 (the operator's default)", amount(value),
				rangeText(r.least, r.most, r.whole))
			continue
		}
		q.set(r.name, value)
	}
	if known < len(changes) {
		for name := range changes {
			if !knownQuota(name) {
				p.add("quotas."+string(name), "is not a quota; they are %s", quotaList())
			}
		}
	}
	return q, p.err()
}

// Validate names the quota that is out of range.
func (q Quotas) Validate() error {
	all := map[QuotaName]float64{}
	for _, r := range quotaRules {
		all[r.name] = q.Get(r.name)
	}
	_, err := Quotas{}.With(all)
	return err
}

// ParseQuotas reads quotas such as "pending_tasks=100000", one per item.
func ParseQuotas(items []string) (map[QuotaName]float64, error) {
	all := map[QuotaName]float64{}
	for _, item := range items {
		name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
		value, err := strconv.ParseFloat(text, 64)
		switch _, twice := all[QuotaName(name)]; {
		case !ok:
			return nil, InvalidField("quotas",
				"has %q; each must look like pending_tasks=100000, and be one of %s", item,
				quotaList())
		case twice:
			return nil, InvalidField("quotas."+name, "is given twice")
		case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
			return nil, InvalidField("quotas."+name, "is %q; it must be a number", text)
		}
		all[QuotaName(name)] = value
	}
	_, err := Quotas{}.With(all)
	return all, err
}

// ContextOverQuota is the error about a context that is larger than a tenant's quota.
func ContextOverQuota(limit, size int) *Error {
	return &Error{Code: CodeQuota, Quota: &QuotaUse{QuotaContextBytes, float64(limit),
		float64(size)},
		Message: fmt.Sprintf("the tenant's quota %s is %d, and the context is %d bytes",
			QuotaContextBytes, limit, size),
		Fields: []FieldError{{Field: "context",
			Message: fmt.Sprintf("is %d bytes; the tenant's quota is %d", size, limit)}}}
}

// QuotaExceeded is the error about a change that would exceed a tenant's quota.
func QuotaExceeded(name QuotaName, limit, used float64) *Error {
	return &Error{Code: CodeQuota, Quota: &QuotaUse{name, limit, used},
		Message: fmt.Sprintf("the tenant's quota %s is %s, and %s are in use", name, amount(limit),
			amount(used))}
}

func knownQuota(name QuotaName) bool {
	for _, r := range quotaRules {
		if r.name == name {
			return true
		}
	}
	return false
}

func quotaList() string {
	names := make([]string, len(quotaRules))
	for i, r := range quotaRules {
		names[i] = string(r.name)
	}
	return strings.Join(names, ", ")
}

func rangeText(least, most float64, whole bool) string {
	kind := "a number"
	if whole {
		kind = "a whole number"
	}
	return fmt.Sprintf("%s of %s to %s", kind, amount(least), amount(most))
}

func amount(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
