package postgres

import "github.com/jackc/pgx/v5/pgxpool"

// PoolStat counts the connections of a pool and the waits for them.
type PoolStat struct {
	Name              string // "pool" or "hot-pool", as their settings are called
	Most, Idle, InUse int
	Acquires          int64   // of connections, ever
	Waits             int64   // acquires that found no connection free
	WaitSeconds       float64 // of all acquires together
}

// Add adds the counts of a pool, or of a part of one.
func (p *PoolStat) Add(stat *pgxpool.Stat) {
	p.Most += int(stat.MaxConns())
	p.Idle += int(stat.IdleConns())
	p.InUse += int(stat.AcquiredConns())
	p.Acquires += stat.AcquireCount()
	p.Waits += stat.EmptyAcquireCount()
	p.WaitSeconds += stat.AcquireDuration().Seconds()
}

// Join adds the counts of another pool.
func (p *PoolStat) Join(other PoolStat) {
	p.Most += other.Most
	p.Idle += other.Idle
	p.InUse += other.InUse
	p.Acquires += other.Acquires
	p.Waits += other.Waits
	p.WaitSeconds += other.WaitSeconds
}
