package console

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"html/template"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/oauth2"

	"github.com/asyncflow/asyncflow"
)

// A login at the issuer begins at /console/oidc and ends at /console/oidc/callback. In between, a
// cookie of its own keeps what the end needs. So the two may meet different nodes, and a callback
// counts only in the browser that began the login.

const (
	loginCookie = "__Host-asyncflow_login"
	// loginTime is how long a login at the issuer may take.
	loginTime = 10 * time.Minute
	// maxReturn bounds the address to return to, in bytes.
	maxReturn = 1 << 10
	// maxCode bounds a code of the issuer, in bytes.
	maxCode = 4 << 10
)

const (
	loginPath    = "/console/oidc"
	callbackPath = "/console/oidc/callback"
)

// pendingLogin is a login under way.
type pendingLogin struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"` // of PKCE (RFC 7636)
	To       string    `json:"to"`       // the page to return to
	Until    time.Time `json:"until"`
}

// beginLogin sends the browser to the issuer.
func (c *Console) beginLogin(ctx *fiber.Ctx) error {
	to := ctx.Query("to", "/console")
	if len(to) > maxReturn { // such as a page with a long filter: the login matters more
		to = "/console"
	}
	if !ownPage(to) {
		return c.loginFailed(ctx, asyncflow.InvalidField("to", "must be a path below /console"))
	}
	l := pendingLogin{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		To: to, Until: c.now().Add(loginTime)}
	target, err := c.issuer.authorizeURL(ctx.UserContext(), l, c.callbackURL())
	if err != nil {
		return c.issuerFailed(ctx, err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	setCookie(ctx, loginCookie, c.seals.seal(string(text), useLogin), loginTime)
	return ctx.Redirect(target, fiber.StatusSeeOther)
}

// endLogin starts the session of a browser that comes back from the issuer, from an address. The
// login's cookie stays until the login is used, so that a refused one can be tried again.
func (c *Console) endLogin(ctx *fiber.Ctx, from netip.Addr) error {
	l, ok := c.pendingLogin(ctx)
	if !ok {
		setCookie(ctx, loginCookie, "", -1)
		return c.loginFailed(ctx, errUnknownLogin)
	}
	if !equal(ctx.Query("state"), l.State) {
		return c.loginFailed(ctx, asyncflow.Errorf(asyncflow.CodeInvalid, "this answer belongs to "+
			"another login than the last one of this browser (state)"))
	}
	if iss := ctx.Query("iss"); iss != "" && iss != c.issuer.cfg.Issuer { // RFC 9207
		return c.loginFailed(ctx, asyncflow.Errorf(asyncflow.CodeInvalid,
			"this answer comes from another issuer"))
	}
	if refused := ctx.Query("error"); refused != "" {
		return c.loginFailed(ctx, asyncflow.Errorf(asyncflow.CodeInvalid,
			"the issuer refused the login: %.100q %.300q", refused, ctx.Query("error_description")))
	}
	code := ctx.Query("code")
	if code == "" || len(code) > maxCode {
		return c.loginFailed(ctx, asyncflow.InvalidField("code", "must be 1 to %d bytes", maxCode))
	}
	end, err := c.issuer.exchanges.begin(ctx.UserContext(), l, from)
	if err != nil {
		return c.loginFailed(ctx, err)
	}
	defer end()
	setCookie(ctx, loginCookie, "", -1) // it serves once
	token, err := c.issuer.exchangeCode(ctx.UserContext(), l, code, c.callbackURL())
	if err != nil {
		return c.issuerFailed(ctx, err)
	}
	if _, err := c.start(ctx, token); err != nil {
		return c.loginFailed(ctx, err)
	}
	return ctx.Redirect(l.To, fiber.StatusSeeOther)
}

// pendingLogin returns the login that a browser began. ok is false if there is none, or it took too
// long.
func (c *Console) pendingLogin(ctx *fiber.Ctx) (l pendingLogin, ok bool) {
	text, ok := c.seals.open(ctx.Cookies(loginCookie), useLogin)
	if !ok || json.Unmarshal([]byte(text), &l) != nil {
		return pendingLogin{}, false
	}
	return l, c.now().Before(l.Until)
}

func (c *Console) callbackURL() string {
	return strings.TrimRight(c.cfg.PublicURL, "/") + callbackPath
}

// ownPage reports whether an address is a path of the console, with or without a query. Anything
// else could lead a user, who trusts the login, to somebody else's page.
func ownPage(to string) bool {
	if strings.ContainsFunc(to, func(r rune) bool {
		return r == '\\' || r <= ' ' || r >= 0x7f
	}) {
		return false
	}
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" {
		return false
	}
	if strings.ContainsAny(u.Path, "\\\r\n") || strings.Contains(u.Path, "//") {
		return false
	}
	clean := path.Clean(u.Path)
	inside := clean == "/console" || strings.HasPrefix(clean, "/console/")
	return inside && strings.HasPrefix(to, "/console") && !strings.HasPrefix(clean, loginPath)
}

// equal compares two secrets in constant time.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// issuerFailed logs why the issuer didn't do its part. The page says it in fewer words.
func (c *Console) issuerFailed(ctx *fiber.Ctx, err error) error {
	c.cfg.Log.Warn("a login at the issuer failed", "issuer", c.issuer.cfg.Issuer,
		"error", asyncflow.AuditText(err.Error(), 1000))
	why := "it can't be reached, or its answer makes no sense; the node's log says more"
	var refused *oauth2.RetrieveError
	switch {
	case errors.Is(err, errNonce), errors.Is(err, errParty), errors.Is(err, errNoParty):
		why = err.Error()
	case errors.As(err, &refused):
		why = "it refused the code of this login"
	}
	return c.loginFailed(ctx, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
		Message: "the issuer " + c.issuer.cfg.Issuer + " failed: " + why})
}

// failurePage is what a person sees when a login at the issuer fails. It is without a script: the
// program of the console may not be loaded yet.
var failurePage = template.Must(template.New("failure").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Login failed · asyncflow</title>
<link rel="stylesheet" href="/console/assets/console.css">
</head>
<body class="failure">
<main>
<h1>You are not logged in</h1>
<p>{{.}}</p>
<p><a href="/console">Back to the console</a></p>
</main>
</body>
</html>
`))

// loginFailed answers with a page that says why there is no session. An error of the issuer is a
// 502, so that alerts on 5xx see it.
func (c *Console) loginFailed(ctx *fiber.Ctx, err error) error {
	var known *asyncflow.Error
	if !errors.As(err, &known) || known.Code == asyncflow.CodeInternal {
		return err
	}
	status := fiber.StatusBadRequest
	switch known.Code {
	case asyncflow.CodeUnavailable:
		status = fiber.StatusBadGateway
	case asyncflow.CodeRateLimited:
		status = fiber.StatusTooManyRequests
		ctx.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(known.RetryAfter.Seconds())))
	}
	var page bytes.Buffer
	if err := failurePage.Execute(&page, known.Detail()); err != nil {
		return err
	}
	ctx.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return ctx.Status(status).Send(page.Bytes())
}
