package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// failedForGood reads how many tasks of each type, and of all together, failed for good lately.
func (j *alertsJob) failedForGood(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	failed, err := j.store.FailedForGood(ctx, tenant, at.Add(-rules.FailedPeriod()))
	detail := &asyncflow.AlertDetail{Within: rules.FailedPeriod().Seconds()}
	read := func(subject string, n int64, limit int) {
		if limit > 0 && n > 0 {
			r.add(asyncflow.AlertReading{Alert: asyncflow.AlertFailedForGood, Subject: subject,
				Value: float64(n), Limit: float64(limit), Detail: detail})
		}
	}
	var total, most int64
	for name, n := range failed {
		if name == asyncflow.AlertType {
			continue
		}
		total += n
		read(name, n, rules.FailedForGood)
		r.represent(asyncflow.AlertFailedForGood, name, standIn{typ: name})
		if n > most { // one type is searched, not all
			most = n
			r.represent(asyncflow.AlertFailedForGood, asyncflow.AllTypes, standIn{typ: name})
		}
	}
	read(asyncflow.AllTypes, total, rules.FailedInTotal)
	return err
}

// willExpire reads how many tasks of each type that are not running expire soon.
func (j *alertsJob) willExpire(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	soon, err := j.store.WillExpire(ctx, tenant, at.Add(rules.WillExpirePeriod()),
		rules.WillExpire)
	for name, n := range soon {
		r.live = true
		if name != asyncflow.AlertType {
			r.add(asyncflow.AlertReading{Alert: asyncflow.AlertWillExpire, Subject: name,
				Value: float64(n), Limit: float64(rules.WillExpire),
				Detail: &asyncflow.AlertDetail{Within: rules.WillExpirePeriod().Seconds()}})
		}
	}
	return err
}

// blockedKeys reads for how long the flow keys of each type stand still, of those that do so for at
// least as long as the rule says.
func (j *alertsJob) blockedKeys(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules, at time.Time,
) error {
	blocked, err := j.store.BlockedKeys(ctx, tenant, at.Add(-rules.BlockedKey.Std()))
	if err != nil {
		// The other rules go on, and episodes of this one neither begin nor end.
		j.log.Warn("the flow keys of a tenant couldn't be looked at for the alert blocked_key",
			"tenant", tenant, "error", err)
		for name := range j.store.Catalog.TypesOf(tenant) {
			r.add(asyncflow.AlertReading{Alert: asyncflow.AlertBlockedKey, Subject: name,
				Open: true})
		}
		return nil
	}
	for name, keys := range blocked {
		r.add(asyncflow.AlertReading{Alert: asyncflow.AlertBlockedKey, Subject: name,
			Value: seconds(at.Sub(keys.Longest[0].Since)), Limit: rules.BlockedKey.Std().Seconds(),
			Certain: true,
			Detail:  &asyncflow.AlertDetail{Keys: keys.Longest, BlockedKeys: keys.Count}})
	}
	return err
}

// longWaits reads how long the tasks of each type that were started lately had been due: 99 % of
// them at most. If none was started, it reads for how long the oldest one is due.
func (j *alertsJob) longWaits(
	ctx context.Context, r *readings, tenant string, rules asyncflow.AlertRules,
	stats []store.Stats, at time.Time,
) error {
	waits, err := j.store.StartWaits(ctx, tenant, at.Add(-rules.LongWaitPeriod()))
	for _, s := range stats {
		if s.Type == asyncflow.AlertType || s.Paused {
			continue
		}
		reading := asyncflow.AlertReading{Alert: asyncflow.AlertLongWait, Subject: s.Type,
			Limit:  rules.LongWait.Std().Seconds(),
			Detail: &asyncflow.AlertDetail{Within: rules.LongWaitPeriod().Seconds()}}
		wait, started := waits[s.Type]
		switch {
		case started:
			reading.Value = seconds(wait.P99)
			reading.Detail.P50 = seconds(wait.P50)
		case len(s.Backlog) > 0 && !s.OldestDue.IsZero():
			reading.Value = seconds(at.Sub(s.OldestDue))
			reading.WaitsFor = s.Backlog[0].WaitsFor
			r.represent(asyncflow.AlertLongWait, s.Type, standIn{s.Type, s.OldestDue})
		default:
			continue
		}
		r.add(reading)
	}
	return err
}
