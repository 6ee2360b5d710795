package web_test

import "time"

// questions asks what an operator of the shop asks, each from the overview, and logs how long the
// console takes to show the answer and with how many clicks. failed is the id of a task.
func (p *page) questions(failed string) {
	p.t.Helper()
	p.ask("what is broken now", "an endpoint fails")
	p.ask("since when", "the oldest for")
	p.ask("which type is behind, and why", "it has answered 410")
	p.ask("what failed in the last hour, by error", "no funds on the account", "Failures")
	p.ask("was it so yesterday", "failed, per h", "7 d")
	p.ask("which worker is slow", "slow", "Workers")
	for _, known := range []string{failed, "cleo", "no funds"} {
		p.ask("what happened to the task of "+known, failed, "Tasks", known)
	}
}

// ask opens the overview, chooses one after the other of the words, and waits for the answer. What
// is no link of the page is a text to search for.
func (p *page) ask(question, answer string, words ...string) {
	p.t.Helper()
	p.open("/console")
	p.See("Deliveries stand still")
	begun := time.Now()
	for i, word := range words {
		if i == 0 {
			p.Click(word)
			continue
		}
		const find = "Find by id, key, user or text"
		p.See(find)
		p.Fill(find, word)
		p.Click("Search")
	}
	p.See(answer)
	p.t.Logf("%s: %d clicks or texts, %d ms", question, len(words),
		time.Since(begun).Milliseconds())
}
