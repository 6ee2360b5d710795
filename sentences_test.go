package asyncflow_test

import (
	"bytes"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// vague are words after which a reader asks "which?" or "who?", and how many there may be in 1,000
// words of comments and of documents. "Has" often stands for a verb that says more: keeps, takes,
// lists. The bounds are just above what is there, so that the share can only fall: lower them
// whenever it falls.
var vague = []struct {
	pattern       string
	comments, doc float64
}{
	{`(?i)\bthose\b`, 0.5, 0.3},
	{`(?i)\b(of which|about which|whose)\b`, 0.3, 0.35},
	{`(?i)\b(has|have|had) (\w+ ){0,2}\w+ed\b`, 0.8, 0.85},
	{`(?i)\b(has|have)\b`, 3.5, 9.4},
}

// Sentences name their subject and their nouns.
func TestSentencesNameTheirNouns(t *testing.T) {
	t.Parallel()
	var comments, pages strings.Builder
	walkFiles(t, func(path string, text []byte) {
		if strings.HasSuffix(path, ".go") && !bytes.Contains(text, []byte("Code generated")) {
			addComments(&comments, text)
		}
	})
	for _, page := range documents(t) {
		pages.WriteString(withoutCode(readText(t, page)))
	}
	for _, v := range vague {
		t.Run(v.pattern, func(t *testing.T) {
			assert.LessOrEqual(t, share(v.pattern, comments.String()), v.comments,
				"%s in 1,000 words of comments: name the noun", v.pattern)
			assert.LessOrEqual(t, share(v.pattern, pages.String()), v.doc,
				"%s in 1,000 words of documents: name the noun", v.pattern)
		})
	}
}

// share returns how often a pattern is in 1,000 words of a text.
func share(pattern, text string) float64 {
	found := regexp.MustCompile(pattern).FindAllStringIndex(text, -1)
	return float64(len(found)) * 1000 / float64(len(strings.Fields(text)))
}

// addComments adds the comments of a Go file to a text.
func addComments(to *strings.Builder, src []byte) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(src)), src, nil, scanner.ScanComments)
	for {
		_, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return
		case token.COMMENT:
			to.WriteString(strings.Trim(text, "/*"))
			to.WriteByte('\n')
		}
	}
}
