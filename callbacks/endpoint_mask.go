package callbacks

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/asyncflow/asyncflow"
)

// leastHidden is the least length of a secret that is masked. Shorter ones would match too much.
const leastHidden = 6

// hidden returns the secrets of an endpoint's settings, also secrets within a header.
func hidden(o asyncflow.Outbound) []string {
	all := o.Secrets()
	for name, value := range o.Headers {
		all = append(all, partsOf(name, value)...)
	}
	if a := o.Auth; a.Kind == asyncflow.AuthBasic {
		encoded, both := basic(a)
		all = append(all, encoded, both)
	}
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < leastHidden })
}

// basic returns what HTTP Basic sends for a login, and the text that it encodes.
func basic(a asyncflow.EndpointAuth) (encoded, both string) {
	both = a.Username + ":" + a.Password
	return base64.StdEncoding.EncodeToString([]byte(both)), both
}

// partsOf returns the parts of a header's value that are secrets by themselves: what follows a
// scheme such as Bearer, what it encodes if the scheme is Basic, and the values of cookies.
func partsOf(name, value string) (all []string) {
	if strings.EqualFold(name, "Cookie") {
		for pair := range strings.SplitSeq(value, ";") {
			_, one, _ := strings.Cut(pair, "=")
			all = append(all, strings.Trim(one, "\" \t"))
		}
		return all
	}
	i := strings.IndexAny(value, " \t")
	if i < 0 {
		return nil
	}
	rest := strings.TrimLeft(value[i:], " \t")
	if both, err := base64.StdEncoding.DecodeString(rest); err == nil &&
		strings.EqualFold(value[:i], "Basic") {
		_, password, _ := strings.Cut(string(both), ":")
		all = append(all, string(both), password)
	}
	return append(all, rest)
}

// mask masks some texts. A nil mask masks none.
type mask struct {
	texts []string // also escaped, the longest first
	whole *strings.Replacer
	bytes int // roughly what it takes in memory
}

// newMask returns a mask for some texts, as they stand and escaped. It looks for the longest first,
// because a text may be part of another one.
func newMask(texts ...string) *mask {
	var all []string
	for _, text := range texts {
		all = append(all, escaped(text)...)
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	m := &mask{texts: slices.Compact(all)}
	var pairs []string
	for _, text := range m.texts {
		pairs = append(pairs, text, asyncflow.Mask)
		m.bytes += 1<<10 + len(text)
	}
	m.whole = strings.NewReplacer(pairs...)
	return m
}

// apply masks the texts in another one, and what is left of one before an ellipsis, where cut may
// have made an end: a reason may quote what was cut.
func (m *mask) apply(in string) string {
	if m == nil {
		return in
	}
	pieces := strings.SplitAfterN(m.whole.Replace(in), ellipsis, maxCuts)
	for i, piece := range pieces {
		if start, wasCut := strings.CutSuffix(piece, ellipsis); wasCut {
			pieces[i] = m.applyToEnd(start) + ellipsis
		}
	}
	return strings.Join(pieces, "")
}

// maxCuts bounds how many ellipses are looked at: a worker may send any number. In what cut leaves
// of a text in a reason there are fewer.
const maxCuts = 100

// applyToEnd masks the longest start of one of the texts that in ends with.
func (m *mask) applyToEnd(in string) string {
	at := len(in) // where it begins
	for _, text := range m.texts {
		if len(text) < leastHidden {
			continue
		}
		for i := max(0, len(in)-len(text)); i < at; i++ {
			next := strings.Index(in[i:], text[:leastHidden])
			if next < 0 {
				break
			}
			if i += next; i < at && strings.HasPrefix(text, in[i:]) {
				at = i
			}
		}
	}
	if at == len(in) {
		return in
	}
	return in[:at] + asyncflow.Mask
}

// escaped returns a text as it stands, and as the usual encoders write it into JSON, HTML and URLs.
func escaped(text string) []string {
	all := []string{text, html.EscapeString(text), url.QueryEscape(text), url.PathEscape(text),
		likeJavaScript.Replace(url.QueryEscape(text))}
	for _, r := range otherHTML {
		all = append(all, r.Replace(text))
	}
	for _, escapeHTML := range []bool{true, false} {
		doc := inJSON(text, escapeHTML)
		all = append(all, doc, inASCII(doc), strings.ReplaceAll(inASCII(doc), "/", `\/`))
	}
	return all
}

// likeJavaScript turns the result of url.QueryEscape into that of encodeURIComponent.
var likeJavaScript = strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(",
	"%29", ")", "%2A", "*")

// otherHTML are escapes of HTML that differ from Go's in the quotes.
var otherHTML = []*strings.Replacer{
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#039;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;"),
}

// inJSON returns a text as it stands in a JSON string.
func inJSON(text string, escapeHTML bool) string {
	var doc bytes.Buffer
	e := json.NewEncoder(&doc)
	e.SetEscapeHTML(escapeHTML)
	_ = e.Encode(text) // strings always encode
	return strings.TrimSuffix(doc.String()[1:], "\"\n")
}

// inASCII escapes what isn't ASCII in a JSON string, as many encoders do.
func inASCII(doc string) string {
	var out strings.Builder
	for _, r := range doc {
		if r < 0x80 {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
