package shards

import (
	"bufio"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
)

// Counts tells how often each word occurs, in lower case.
type Counts struct {
	Lines int            `json:"lines"`
	Words map[string]int `json:"words"`
}

// Count counts the words in every line of the .txt files of a folder whose number, from 0 on over
// all files in the order of their names, leaves the rest shard when divided by shards.
func Count(texts fs.FS, shard, shards int) (Counts, error) {
	c := Counts{Words: map[string]int{}}
	names, err := fs.Glob(texts, "*.txt") // in order
	if err != nil {
		return c, err
	}
	number := 0
	for _, name := range names {
		f, err := texts.Open(name)
		if err != nil {
			return c, err
		}
		for lines := bufio.NewScanner(f); ; number++ {
			if !lines.Scan() {
				err = lines.Err()
				break
			}
			if number%shards == shard {
				c.add(lines.Text())
			}
		}
		_ = f.Close() // it was only read
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

func (c *Counts) add(line string) {
	c.Lines++
	for _, word := range strings.FieldsFunc(strings.ToLower(line), func(r rune) bool {
		return !unicode.IsLetter(r)
	}) {
		c.Words[word]++
	}
}

// Total is the sum of the counts of all shards.
type Total struct {
	Lines    int         `json:"lines"`
	Words    int         `json:"words"`
	Distinct int         `json:"distinct"`
	Top      []WordCount `json:"top"` // the ten most frequent words
}

// WordCount is how often a word occurs.
type WordCount struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

// Sum adds counts up.
func Sum(all []Counts) Total {
	total := Total{Top: []WordCount{}}
	words := map[string]int{}
	for _, c := range all {
		total.Lines += c.Lines
		for word, n := range c.Words {
			words[word] += n
			total.Words += n
		}
	}
	total.Distinct = len(words)
	for word, n := range words {
		total.Top = append(total.Top, WordCount{word, n})
	}
	slices.SortFunc(total.Top, func(a, b WordCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Word, b.Word))
	})
	total.Top = total.Top[:min(len(total.Top), 10)]
	return total
}
