package callbacks

import (
	"crypto/hmac"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Link is what the token of a link vouches for: somebody was given a delivery of a task, to decide
// in one way about a wait that comes next.
type Link struct {
	Tenant   string
	Task     asyncflow.TaskID
	Seq      int       // of the delivery
	Stage    string    // that waits
	Decision string    // its name: the order of the decisions may change
	Expiry   time.Time // in whole seconds
}

const (
	// linkPrefix distinguishes the tokens of links from other credentials, and names their version.
	linkPrefix = "afl1."
	// linkPath is where people open links, below the public URL.
	linkPath = "/l/"
	// maxLinkToken bounds tokens, in bytes: mails break long lines.
	maxLinkToken = 300
	// linkLeeway is how long a link verifies beyond the delivery's deadline and the timeout of the
	// wait. Retries and heartbeats move both. Whether a decision counts is up to the task.
	linkLeeway = asyncflow.MaxProcessingTime
)

// LinkToken returns a token: "afl1.<MAC>.<claims>". The claims are "tenant.task.seq.stage.
// decision.expiry", and the MAC is HMAC-SHA-256 over prefix and claims, in base64url. It ends with
// a digit: programs that find links in a text cut some other characters off their end.
func (k *Keys) LinkToken(l Link) string { return string(k.appendLinkToken(nil, l)) }

func (k *Keys) appendLinkToken(b []byte, l Link) []byte {
	signed := append(append(make([]byte, 0, maxLinkToken), linkPrefix...), l.Tenant...)
	signed = l.Task.Append(append(signed, '.'))
	signed = strconv.AppendInt(append(signed, '.'), int64(l.Seq), 10)
	signed = append(append(signed, '.'), l.Stage...)
	signed = append(append(signed, '.'), l.Decision...)
	signed = strconv.AppendInt(append(signed, '.'), l.Expiry.Unix(), 10)
	b = k.all[0].links.appendMAC(append(b, linkPrefix...), signed)
	return append(append(b, '.'), signed[len(linkPrefix):]...)
}

// VerifyLink returns the claims of a token if we signed it. It doesn't check the expiry.
func (k *Keys) VerifyLink(token string) (l Link, ok bool) {
	if len(token) > maxLinkToken {
		return l, false
	}
	rest, ok := strings.CutPrefix(token, linkPrefix)
	if !ok {
		return l, false
	}
	sum, claims, _ := strings.Cut(rest, ".")
	signed := []byte(linkPrefix + claims)
	if !slices.ContainsFunc(k.all, func(one key) bool {
		return hmac.Equal([]byte(sum), one.links.appendMAC(nil, signed))
	}) {
		return l, false
	}
	return parseLink(claims)
}

func parseLink(claims string) (l Link, ok bool) {
	f := strings.Split(claims, ".")
	if len(f) != 8 {
		return l, false
	}
	task, err1 := asyncflow.ParseTaskID(strings.Join(f[1:4], "."))
	seq, err2 := strconv.Atoi(f[4])
	expiry, err3 := strconv.ParseInt(f[7], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return l, false
	}
	return Link{Tenant: f[0], Task: task, Seq: seq, Stage: f[5], Decision: f[6],
		Expiry: time.Unix(expiry, 0)}, true
}

// appendLinks appends the links of a delivery: by stages, by decisions, their URLs.
func (s *Sender) appendLinks(b []byte, d *asyncflow.Delivery) []byte {
	for i, w := range d.Links {
		b = append(b, separator(i, `,"links":{"`)...)
		b = append(append(b, w.Stage...), `":`...)
		for j, decision := range w.Decisions {
			b = append(b, separator(j, `{"`)...)
			b = append(append(b, decision...), `":"`...)
			b = append(append(b, s.cfg.PublicURL...), linkPath...)
			b = append(s.appendLinkTo(b, d, w, decision), '"')
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// separator returns what stands before the name of a member of an object: open before the first.
func separator(i int, open string) string {
	if i == 0 {
		return open
	}
	return `,"`
}

func (s *Sender) appendLinkTo(
	b []byte, d *asyncflow.Delivery, w asyncflow.WaitLinks, decision string,
) []byte {
	if d.Test {
		return append(b, TestToken...)
	}
	return s.keys.appendLinkToken(b, Link{
		Tenant:   d.Tenant,
		Task:     d.Lease.ID,
		Seq:      d.Lease.Seq,
		Stage:    w.Stage,
		Decision: decision,
		Expiry:   latest(d).Add(w.Timeout + linkLeeway),
	})
}

// linkBytes is roughly what a link takes in addition to the public URL.
const linkBytes = maxLinkToken

// linksSize returns roughly how many bytes the links of a delivery take.
func (s *Sender) linksSize(d *asyncflow.Delivery) (size int) {
	for _, w := range d.Links {
		size += len(w.Decisions) * (linkBytes + len(s.cfg.PublicURL))
	}
	return size
}
