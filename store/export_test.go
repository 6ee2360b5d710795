package store

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/claims"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/news"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
	"github.com/asyncflow/asyncflow/store/internal/trees"
	"github.com/asyncflow/asyncflow/store/internal/upkeep"
)

// For tests that look at the plans of the hot statements.
var (
	HotSettings = postgres.HotSettings
	MarkedSQL   = hot.MarkedSQL
)

const (
	TakeReadySQL = records.TakeReadySQL
	HeadSQL      = records.HeadSQL

	ConfirmSQL     = postgres.ConfirmSQL
	EndLeasesSQL   = records.EndLeasesSQL
	TakeLeaseSQL   = records.TakeLeaseSQL
	ExtendLeaseSQL = records.ExtendLeaseSQL

	TakeLockedWaitSQL  = trees.TakeLockedWaitSQL
	TakeLockedReadySQL = trees.TakeLockedReadySQL
	TakeKeysSQL        = hot.TakeKeysSQL
	LockWaitSQL        = trees.LockWaitSQL
	LockReadySQL       = trees.LockReadySQL
	InsertChangedSQL   = trees.InsertChangedSQL
)

// ByIDSQL are statements that find rows of one type by the ids, or the keys, of an array, with
// parameters for them: 10 tasks of the 40,000 of a type.
var ByIDSQL = map[string]PlannedSQL{
	"TakeAnyLeaseSQL": {records.TakeAnyLeaseSQL, "{ids}, {number}"},
	"TakeAnyWaitSQL":  {records.TakeAnyWaitSQL, "{ids}, {number}"},
	"TakeAnyReadySQL": {records.TakeAnyReadySQL, "{times}, {ids}, {number}"},
	"DeleteLifetimes": {records.DeleteLifetimesSQL, "{numbers}, {ids}"},
	"MoveLifetimesSQL": {records.MoveLifetimesSQL,
		"{number}, {ids}, {times}, {seqs}, {times}, {seqs}"},
	"TakeLeaseSQL":     {records.TakeLeaseSQL, "{ids}, {seqs}, {numbers}"},
	"checkpoints":      {records.DeleteCheckpointsSQL, "{number}, {ids}"},
	"checkpoints over": {upkeep.DeleteOverSQL, "{number}, {ids}"},

	"AgainSQL":      {claims.AgainSQL, "{ids}, {seqs}, {times}, {times}, {number}"},
	"TakeClaimsSQL": {claims.TakeClaimsSQL, "{ids}, {seqs}, {times}, {number}"},

	"KeyStatesSQL": {hot.KeyStatesSQL, "{keys}, {number}"},
	"OrderedKeyStatesSQL": {hot.OrderedKeyStatesSQL,
		"{keys}, {number}, '{first}', 'pipe', true, false"},

	"HaltedSQL":          {trees.HaltedSQL, "{numbers}, {ids}, {seqs}, now()"},
	"TakeParentsSQL":     {trees.TakeParentsSQL, "{number}, {ids}, {seqs}"},
	"ParkReadySQL":       {trees.ParkReadySQL, "{times}, {ids}, {number}"},
	"LockDueReadySQL":    {trees.LockDueReadySQL, "{times}, {ids}, {number}"},
	"TakeLockedReadySQL": {trees.TakeLockedReadySQL, "{times}, {ids}, {number}"},
	"LockSignalWaitsSQL": {trees.LockSignalWaitsSQL, "{number}, {ids}"},
	"CloseByIDSQL":       {trees.CloseByIDSQL, "{number}, {ids}, {keys}, {keys}, 500"},
	"CloseByKeySQL":      {trees.CloseByKeySQL, "{number}, {ids}, {keys}, {keys}, 500"},
	"WaitingSQL":         {trees.WaitingSQL, "{number}, {ids}"},
	"TakeDependentsSQL":  {trees.TakeDependentsSQL, "{number}, {ids}"},
	"ReadEdgesSQL":       {trees.ReadEdgesSQL, "{number}, {ids}"},
	"CloseEdgesSQL":      {trees.CloseEdgesSQL, "{number}, {ids}, {seqs}, {keys}, {ids}"},
	"DeleteEdgesSQL":     {trees.DeleteEdgesSQL, "{number}, {ids}"},
	"KeyedAgainSQL":      {trees.KeyedAgainSQL, "{number}, {ids}"},
	"ReopenSQL":          {trees.ReopenSQL, "{number}, {ids}, now()"},
	"FollowEdgesSQL":     {trees.FollowEdgesSQL, "{numbers}, {ids}, 500"},
	"WaitersSQL":         {trees.WaitersSQL, "{numbers}, {ids}, {keys}, 500"},
	"FailedBySQL":        {trees.FailedBySQL, "{numbers}, {ids}, 500"},
	"MovingSQL":          {trees.MovingSQL, "{ids}, {number}"},

	"EraseTasksSQL":     {tasks.EraseTasksSQL, "{number}, {ids}, {keys}, 'erased'"},
	"EraseKeysSQL":      {tasks.EraseKeysSQL, "'pipe', {keys}, {ids}"},
	"EraseLateVotesSQL": {tasks.EraseLateVotesSQL, "{number}, {ids}, {keys}"},
	"DeleteKeysSQL":     {upkeep.DeleteKeysSQL, "'pipe', {keys}, {ids}"},

	"OptionsSQL":           {records.OptionsSQL, "{ids}, {number}"},
	"CreatedSQL":           {records.CreatedSQL, "{ids}, {number}"},
	"RulesSQL":             {claims.RulesSQL, "{ids}, {number}"},
	"EndsSQL":              {trees.EndsSQL, "{ids}, {number}"},
	"TokenStatesSQL":       {trees.TokenStatesSQL, "{ids}, {number}"},
	"ReplaceStatesSQL":     {trees.ReplaceStatesSQL, "{ids}, {number}, 10"},
	"OpenFanOutsSQL":       {trees.OpenFanOutsSQL, "{number}, {ids}"},
	"LockFanOutsSQL":       {trees.LockFanOutsSQL, "{number}, {ids}"},
	"StopFanOutsSQL":       {trees.StopFanOutsSQL, "{number}, {ids}, now()"},
	"LockPausedSQL":        {trees.LockPausedSQL(""), "{numbers}, {ids}, {seqs}"},
	"LockRedrivenSQL":      {trees.LockRedrivenSQL, "{ids}, {number}"},
	"DeleteSignalWaitsSQL": {trees.DeleteSignalWaitsSQL, "{number}, {ids}"},
	"LockWaitsOverSQL":     {trees.LockWaitsOverSQL, "{number}, {ids}"},
	"DeleteWaitsOverSQL":   {trees.DeleteWaitsOverSQL, "{number}, {ids}"},
	"DeleteRefusedSQL":     {trees.DeleteRefusedSQL, "{number}, {ids}"},
	"DeleteRefusedKeysSQL": {trees.DeleteRefusedKeysSQL, "'pipe', {keys}, {ids}"},

	"FinalsSQL":           {tasks.FinalsSQL, "{ids}, {number}"},
	"EraseJournalSQL":     {tasks.EraseJournalSQL, "{number}, {ids}"},
	"EraseSpawnsSQL":      {tasks.EraseSpawnsSQL, "{number}, {ids}"},
	"NotificationsSQL":    {tasks.NotificationsSQL, "{number}, {ids}"},
	"EventsSQL":           {tasks.EventsSQL, "{number}, {ids}"},
	"StartingSQL":         {tasks.StartingSQL, "{number}, {ids}"},
	"TakeContentWaitsSQL": {tasks.TakeContentWaitsSQL, "{number}, {ids}"},
	"VisitSomeSQL":        {tasks.VisitSomeSQL, "{number}, {ids}, now()"},
	"RerunSQL":            {tasks.RerunSQL, "{ids}, {number}, 1000000, '{first}'"},
	"search": {records.DeleteSearchSQL + records.OfTasksSQL + `))`,
		"{number}, {ids}"},
	"trim task":      {upkeep.DeleteRowsSQL("{task}"), "{number}, {ids}"},
	"trim journal":   {upkeep.DeleteRowsSQL("{journal}"), "{number}, {ids}"},
	"trim fan_outs":  {upkeep.TakeRowsSQL("{fan_outs}"), "{number}, {ids}"},
	"trim past_keys": {upkeep.TakeRowsSQL("{past_keys}"), "{number}, {ids}"},
	"trim edges":     {upkeep.TakeRowsSQL("{edges}"), "{number}, {ids}"},
	"trim lifetimes": {upkeep.TakeRowsSQL("{lifetimes}"), "{number}, {ids}"},
}

// FirstAgedSQL and DueWaitsSQL find what the job erase does next.
const (
	FirstAgedSQL = tasks.FirstAgedSQL
	DueWaitsSQL  = tasks.DueWaitsSQL
)

// Pin is what transactions begin with that find rows by ids.
var Pin = postgres.Pin

// QueueTake runs statements of ByIDSQL that lock rows and delete them by their ctid.
var QueueTake = records.QueueTake

// KeepRoll is what a new dependent of a task does to the roll of that task.
var KeepRoll = config.KeepRoll

// PlannedSQL is a statement with values for its parameters.
type PlannedSQL struct{ SQL, Args string }

// inside returns a field of a struct of another room, found by the names of the fields that lead to
// it. T must be its type.
func inside[T any](of any, path ...string) *T {
	v, ok := of.(reflect.Value)
	if !ok {
		v = reflect.ValueOf(of)
	}
	for _, name := range path {
		v = reflect.Indirect(v).FieldByName(name)
	}
	return (*T)(v.Addr().UnsafePointer())
}

// ForgetNumbers makes the next submits take new blocks of numbers.
func (s *Store) ForgetNumbers() { hot.Forget(s.hotRoom, func(TypeKey) bool { return true }) }

// KeepNumbers makes the blocks of numbers last that were taken so far. Nobody submits meanwhile.
func (s *Store) KeepNumbers() {
	blocks := reflect.ValueOf(s.hotRoom).Elem().FieldByName("numbers").Elem().FieldByName("blocks")
	for _, key := range blocks.MapKeys() {
		taken := blocks.MapIndex(key).Elem().FieldByName("taken")
		*(*time.Time)(taken.Addr().UnsafePointer()) = time.Now().Add(time.Hour)
	}
}

// ShiftClock makes the clock go on at another time.
func (s *Store) ShiftClock(d time.Duration) {
	field := reflect.ValueOf(s.Clock).Elem().FieldByName("offset")
	offset := reflect.NewAt(field.Type(), field.Addr().UnsafePointer())
	known := offset.MethodByName("Load").Call(nil)[0]
	next := reflect.New(known.Type().Elem())
	next.Elem().Set(known.Elem())
	for _, name := range []string{"nanos", "from"} {
		*(*int64)(next.Elem().FieldByName(name).Addr().UnsafePointer()) += int64(d)
	}
	offset.MethodByName("Store").Call([]reflect.Value{next})
}

// Base returns the pool for what belongs to no tenant.
func (s *Store) Base() *pgxpool.Pool { return s.core.Base }

// Confirm confirms in a transaction of a tenant: at its worker if it is hot, else through the
// coordinator.
func (s *Store) Confirm(ctx context.Context, tenant string, hot bool) error {
	db := s.core.DB(tenant)
	if hot {
		db = s.core.HotDB(tenant)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return s.core.Confirm(ctx, tx, tenant) })
}

// PlanModes returns how hot connections plan, and how a pinned transaction does.
func (s *Store) PlanModes(ctx context.Context, tenant string) (hot, pinned string, err error) {
	const show = `SELECT current_setting('plan_cache_mode')`
	if err = s.core.HotDB(tenant).QueryRow(ctx, show).Scan(&hot); err != nil {
		return "", "", err
	}
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		if err := postgres.Pin(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, show).Scan(&pinned)
	})
	return hot, pinned, err
}

// DBOf returns the database for a tenant's work, over hot connections or the rest.
func (s *Store) DBOf(tenant string, hot bool) postgres.TenantDB {
	if hot {
		return s.core.HotDB(tenant)
	}
	return s.core.DB(tenant)
}

// FollowDBOf returns the database for what follows from a tenant's submits and settlements.
func (s *Store) FollowDBOf(tenant string) postgres.TenantDB { return s.core.FollowDB(tenant) }

// DBsOfCoordinator returns the databases for a tenant's work through the coordinator of Citus: over
// hot connections and the rest.
func (s *Store) DBsOfCoordinator(tenant string) []postgres.TenantDB {
	return []postgres.TenantDB{
		postgres.NewTenantDB(func(ctx context.Context) (*pgxpool.Conn, func(), error) {
			return s.core.HotPool.Acquire(ctx, tenant)
		}, s.core.Roles, tenant), s.core.DB(tenant)}
}

// LockTables locks the tables of a roll of a type against writers.
func LockTables(ctx context.Context, tx pgx.Tx, t *Type, position int) error {
	return config.LockTables(ctx, tx, t.Tenant, []string{t.SetAt(position).Tables.Task(position)},
		"SHARE")
}

// RoleOf returns the role of a tenant as the store knows it.
func (s *Store) RoleOf(ctx context.Context, tenant string) (string, error) {
	return s.core.Roles.Of(ctx, tenant)
}

// WriteMinutes writes what CountAttempt counted.
func (s *Store) WriteMinutes(ctx context.Context) error {
	return counts.WriteMinutes(ctx, s.countsRoom)
}

// CountSettled counts settlements that were written.
func (s *Store) CountSettled(key TypeKey, settled []asyncflow.Settlement) {
	s.core.CountSettled(key, settled...)
}

// LimitLocks sets how long another transaction may keep this node out of a lock.
func (s *Store) LimitLocks(limit time.Duration) {
	mu := inside[sync.Mutex](s.core, "holders", "mu")
	mu.Lock()
	defer mu.Unlock()
	*inside[time.Duration](s.core, "holders", "limit") = limit
}

// BaseRole returns the base role.
func (s *Store) BaseRole() string { return s.core.Roles.Base() }

// Outside runs a statement of a tenant outside of a transaction.
func (s *Store) Outside(ctx context.Context, tenant, sql string) error {
	return s.core.DB(tenant).Outside(ctx, sql)
}

// Roles are all ways to run statements of a tenant: each gives the role that one ran
// under. do, unless it is "", is run after it in the same transaction where there is one.
func (s *Store) Roles(ctx context.Context, tenant, do string) map[string]func() (string, error) {
	const who = `SELECT current_user::text`
	one := func(db postgres.Querier) func() (string, error) {
		return func() (role string, err error) { return role, db.QueryRow(ctx, who).Scan(&role) }
	}
	batch := func(role *string, begin string) *pgx.Batch {
		b := &pgx.Batch{}
		if begin != "" {
			b.Queue(begin)
		}
		b.Queue(who).QueryRow(func(row pgx.Row) error { return row.Scan(role) })
		if do != "" {
			b.Queue(do)
		}
		return b
	}
	return map[string]func() (string, error){
		"query":     one(s.core.DB(tenant)),
		"hot query": one(s.core.HotDB(tenant)),
		"unprepared": func() (role string, err error) {
			return role, s.core.DB(tenant).QueryRow(ctx, who, pgx.QueryExecModeExec).Scan(&role)
		},
		"exec": func() (role string, err error) {
			if do == "" {
				return one(s.core.DB(tenant))()
			}
			_, err = s.core.DB(tenant).Exec(ctx, do)
			return "", err
		},
		"batch": func() (role string, err error) {
			return role, s.core.DB(tenant).Send(ctx, batch(&role, ""))
		},
		"begun batch": func() (role string, err error) {
			b := batch(&role, "BEGIN")
			b.Queue("COMMIT")
			return role, s.core.DB(tenant).Send(ctx, b)
		},
		"transaction": func() (role string, err error) {
			return role, pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
				return tx.SendBatch(ctx, batch(&role, "")).Close()
			})
		},
		"connection": func() (role string, err error) {
			conn, err := s.core.HotDB(tenant).Acquire(ctx)
			if err != nil {
				return "", err
			}
			defer conn.Release()
			if err := conn.Send(ctx, batch(new(string), "BEGIN")); err != nil {
				return "", err
			}
			b := batch(&role, "")
			b.Queue("COMMIT")
			return role, conn.Send(ctx, b)
		},
	}
}

// FoldBatch is the most rows that a fold takes at once.
const FoldBatch = upkeep.FoldBatch

// MigrateSchema exposes schema.MigrateOne, under the login role.
func MigrateSchema(ctx context.Context, url, name string, set fs.FS) (MigrationStatus, error) {
	return schema.MigrateOne(ctx, url, name, set, "")
}

// CreateTenantAt makes a tenant as a program did that had only some of the migrations.
func CreateTenantAt(
	ctx context.Context, url, slug string, set fs.FS, version int64, noRoles bool,
) error {
	f, err := schema.OpenRoleFence(ctx, url)
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	name, role := postgres.Quote(schema.Of(slug)), ""
	if !noRoles {
		role = f.RoleOf(slug)
		_, err := f.Conn().Exec(ctx, `DO $$ BEGIN CREATE ROLE `+postgres.Quote(role)+` NOLOGIN;
			EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
			CREATE SCHEMA `+name+` AUTHORIZATION `+postgres.Quote(role))
		if err != nil {
			return err
		}
	}
	if _, err := schema.MigrateOne(ctx, url, schema.Of(slug), set, role); err != nil {
		return err
	}
	if !noRoles {
		base := postgres.Quote(strings.TrimSuffix(role, "_"+slug))
		_, err := f.Conn().Exec(ctx, `GRANT USAGE ON SCHEMA `+name+` TO `+base+`;
			GRANT SELECT ON ALL TABLES IN SCHEMA `+name+` TO `+base)
		if err != nil {
			return err
		}
	}
	_, err = f.Conn().Exec(ctx, `INSERT INTO asyncflow.tenants (slug, schema_version, role)
		VALUES ($1, $2, nullif($3, ''))`, slug, version, role)
	return err
}

// PageLook is the most candidates that are looked at for a page.
const PageLook = tasks.PageLook

// CountLook is the most candidates that are looked at for a count.
const CountLook = tasks.CountLook

// PageText is about the most bytes of contexts and outputs that are searched for a page.
const PageText = tasks.PageText

// InsertAudit exposes insertAudit.
var InsertAudit = audit.Insert

// KeptTypes returns of how many types and table sets the store keeps something besides the catalog.
func (s *Store) KeptTypes() int {
	kept := map[TypeKey]bool{}
	collect := func(key TypeKey) bool {
		kept[key] = true
		return false
	}
	s.core.Marks.Forget(collect)
	s.core.KeyMarks.Forget(collect)
	hot.Forget(s.hotRoom, collect)
	return len(kept)
}

// DoubtMarks makes the next leases look at everything, as after announcements that were lost.
func (s *Store) DoubtMarks() {
	s.core.Marks.Reset()
	s.core.KeyMarks.Reset()
}

// MarksOf says what the low-water marks of a type are, by position.
func (s *Store) MarksOf(key TypeKey) string {
	var all strings.Builder
	types := reflect.ValueOf(s.core.Marks).Elem().FieldByName("types")
	marks := types.MapIndex(reflect.ValueOf(key))
	if !marks.IsValid() {
		return ""
	}
	for it := marks.MapRange(); it.Next(); {
		mark := inside[time.Time](it.Value(), "mark")
		fmt.Fprintf(&all, "%v: mark %v, %+v\n", it.Key(), mark, it.Value().Elem())
	}
	return all.String()
}

// RefreshClock measures the offset of the clock.
func (s *Store) RefreshClock(ctx context.Context) error { return news.RefreshClock(ctx, s.Clock) }

// PoolShare returns how many connections of the base pool a tenant may use.
func (s *Store) PoolShare() int { return (*inside[*postgres.Shares](s.core, "shares")).Each() }

// SetChunks bounds transactions of FollowUp, so that few tasks need several.
func (s *Store) SetChunks(edges, spawn, stop int) {
	for name, n := range map[string]int{"edges": edges, "spawn": spawn, "stop": stop} {
		*inside[int](s.treesRoom, "chunks", name) = n
	}
}

// SetTenantsAtOnce sets how many tenants one statement looks at.
func (s *Store) SetTenantsAtOnce(n int) { *inside[int](s.core, "tenantsAtOnce") = n }

// SetSweptChildren bounds a sweep of fan-outs.
func (s *Store) SetSweptChildren(n int) { *inside[int](s.treesRoom, "chunks", "count") = n }

// SetCountTime changes the time that TaskCount may take.
func (s *Store) SetCountTime(d time.Duration) {
	*inside[time.Duration](s.tasksRoom, "countTime") = d
}

// SetFailureTime changes the time that GroupFailures may take.
func (s *Store) SetFailureTime(d time.Duration) {
	*inside[time.Duration](s.tasksRoom, "failureTime") = d
}

// FollowUpRows is one transaction of FollowUp over at most n rows, without further tries. It does
// nothing if it can't get a lock: a dead node may hold it for a moment.
func (s *Store) FollowUpRows(ctx context.Context, tenant string, n int) (more bool, err error) {
	more, err = s.BeginFollowUp(ctx, tenant, n).Commit()
	if postgres.State(err) == pgerrcode.LockNotAvailable {
		return true, nil
	}
	return more, err
}

// LingerAfter returns how long what a settlement left to do may wait for more.
func LingerAfter(t *Type, s *asyncflow.Settlement) time.Duration {
	return hot.LingerAfter(t, s)
}

// StatsStatements returns the statements that count a tenant's types.
func (s *Store) StatsStatements(tenant string) (all []string) {
	for _, some := range counts.ByTables(slices.Collect(maps.Values(s.Catalog.TypesOf(tenant)))) {
		all = append(all, counts.StatsSQL(some))
	}
	return all
}
