"""Foreign Kafka clients behind one interface (`peer.Peer`), and what installs and drives them.

Nothing here knows skylog: a peer gets an address and uses its client the way that client's documentation shows.
"""
