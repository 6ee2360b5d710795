// Package console serves the web console of a node below /console, and keeps the sessions of its
// users.
//
// The console in the browser uses the API that everyone uses. It differs in one thing: its calls
// carry no Authorization header. A login seals the user's token into a cookie that scripts can't
// read, and the API takes the token from there (Console.Token). Nothing about a session is stored
// on the server: every node that knows the secret opens the cookie.
//
// A browser sends the cookie along with every request, also with requests that a page from
// elsewhere makes. So a cookie counts only if the request shows that it comes from the console
// itself or from no page at all (checkOrigin).
package console
