"""Which tinygrad is looked at: a release, a checkout, a commit of one. Found, fetched and kept; never changed."""
