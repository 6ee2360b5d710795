package metrics

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/common/expfmt"
)

// textFormat is Prometheus' text format.
var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// page is the metrics at a moment, as they are sent to all who asked for them then.
type page struct {
	text []byte
	gzip func() []byte // of the text; made when the first caller accepts it
}

func newPage(text []byte) *page {
	return &page{text: text, gzip: sync.OnceValue(func() []byte {
		var short bytes.Buffer
		w, _ := gzip.NewWriterLevel(&short, gzip.BestSpeed) // a level that exists
		_, _ = w.Write(text)                                // a buffer takes all
		_ = w.Close()
		return short.Bytes()
	})}
}

// write answers with the page, compressed if the caller accepts that.
func (p *page) write(w http.ResponseWriter, r *http.Request) {
	body := p.text
	w.Header().Set("Content-Type", string(textFormat))
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		body = p.gzip()
	}
	_, _ = w.Write(body) // an error means that the caller is gone
}

// acceptsGzip reports whether a value of Accept-Encoding names gzip.
func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
		if name == "gzip" {
			return strings.TrimSpace(quality) != "q=0"
		}
	}
	return false
}
