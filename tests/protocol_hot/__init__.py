"""The hand-written codecs of Produce and Fetch, held against the declared ones."""
