package dispatcher

// join makes d the dispatcher of the node.
func (c *Committer) join(d *Dispatcher) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.dispatcher = d
}

// listen hands on news of the store as they come, until the committer is closed.
func (c *Committer) listen() {
	for {
		select {
		case <-c.closed:
			return
		case <-c.news.Changed():
		}
		c.hear()
	}
}

// hear hands on the news of the store: what to follow up, and for what to look. When it returns,
// all that was announced before is handed on, also by another call.
func (c *Committer) hear() {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	news := c.news.Read()
	for tenant, linger := range news.FollowUps {
		c.followUps.tell(tenant, linger)
	}
	c.claims.hear(news)
	if c.dispatcher != nil {
		c.dispatcher.hear(news)
	}
}
