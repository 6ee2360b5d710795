package report

import "slices"

// Series is one figure in all rounds.
type Series struct {
	Key    string    `json:"key"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Rounds []float64 `json:"rounds"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

// Rounds are the figures of all rounds.
type Rounds []Series

// Add adds the figures of a round.
func (r *Rounds) Add(round Figures) {
	for _, f := range round {
		s := r.Series(f.Key)
		if s == nil {
			*r = append(*r, Series{Key: f.Key, Name: f.Name, Unit: f.Unit})
			s = &(*r)[len(*r)-1]
		}
		s.Rounds = append(s.Rounds, f.Value)
		s.Median, s.Min, s.Max = Median(s.Rounds), slices.Min(s.Rounds), slices.Max(s.Rounds)
	}
}

// Series returns the series of a key; nil when there is none.
func (r *Rounds) Series(key string) *Series {
	for i := range *r {
		if (*r)[i].Key == key {
			return &(*r)[i]
		}
	}
	return nil
}

// Medians returns the median of each series.
func (r Rounds) Medians() (all Figures) {
	for _, s := range r {
		all.Add(s.Key, s.Name, s.Unit, s.Median)
	}
	return all
}
